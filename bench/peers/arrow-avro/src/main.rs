//! Framed Avro records to Arrow columns and back with arrow-avro.
//!
//!     arrow-avro rows   ID WRITER READER|- FIELDS|- FRAMES       prints each row as a line of JSON
//!     arrow-avro decode ID WRITER READER|- FIELDS|- FRAMES MS    prints nanoseconds a record
//!     arrow-avro encode ID WRITER -        -        FRAMES MS    the same; checks the bytes first
//!
//! WRITER and READER are files with a schema, FIELDS is a list of top-level field numbers, FRAMES is
//! a file with records of schema ID, one after the other, each with its five-byte prefix. The time is
//! CPU time: the mean of all passes over the file that together take MS milliseconds.
mod rows;

use arrow_array::RecordBatch;
use arrow_avro::reader::{Decoder, ReaderBuilder};
use arrow_avro::schema::{
    AvroSchema, Fingerprint, FingerprintAlgorithm, FingerprintStrategy, SCHEMA_METADATA_KEY,
    SchemaStore,
};
use arrow_avro::writer::WriterBuilder;
use arrow_avro::writer::format::AvroSoeFormat;
use arrow_schema::Schema;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;
use std::{env, fs};

type Failure = Box<dyn Error>;

/// Greatest number of rows of a batch: the file is always one batch.
const ROWS_MAX: usize = 1 << 20;

struct Task {
    id: u32,
    writer: String,
    reader: Option<String>,
    fields: Option<Vec<usize>>,
    frames: Vec<u8>,
}

impl Task {
    fn from(words: &[String]) -> Result<Task, Failure> {
        let [id, writer, reader, fields, frames] = words else {
            return Err("expected: ID WRITER READER FIELDS FRAMES".into());
        };
        let optional = |word: &str| (word != "-").then(|| word.to_string());
        Ok(Task {
            id: id.parse()?,
            writer: fs::read_to_string(writer)?,
            reader: optional(reader).map(fs::read_to_string).transpose()?,
            fields: optional(fields)
                .map(|list| list.split(',').map(str::parse).collect::<Result<_, _>>())
                .transpose()?,
            frames: fs::read(frames)?,
        })
    }

    fn decoder(&self) -> Result<Decoder, Failure> {
        let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
        store.set(
            Fingerprint::Id(self.id),
            AvroSchema::new(self.writer.clone()),
        )?;
        let mut builder = ReaderBuilder::new()
            .with_writer_schema_store(store)
            .with_active_fingerprint(Fingerprint::Id(self.id))
            .with_batch_size(ROWS_MAX);
        if let Some(reader) = &self.reader {
            builder = builder.with_reader_schema(AvroSchema::new(reader.clone()));
        }
        if let Some(fields) = &self.fields {
            builder = builder.with_projection(fields.clone());
        }
        Ok(builder.build_decoder()?)
    }

    fn decode(&self, decoder: &mut Decoder) -> Result<RecordBatch, Failure> {
        let read = decoder.decode(&self.frames)?;
        if read != self.frames.len() {
            return Err(format!("{read} of {} bytes were decoded", self.frames.len()).into());
        }
        decoder
            .flush()?
            .ok_or_else(|| "no rows were decoded".into())
    }

    /// Schema of the columns, whose records are written exactly as the writer schema says.
    fn written_schema(&self, batch: &RecordBatch) -> Schema {
        let mut metadata = batch.schema().metadata().clone();
        metadata.insert(SCHEMA_METADATA_KEY.to_string(), self.writer.clone());
        Schema::new_with_metadata(batch.schema().fields().clone(), metadata)
    }
}

/// CPU time of the process so far.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Mean nanoseconds a row over passes that together take `budget`, after a quarter of it as warm-up.
fn mean_ns(
    rows: usize,
    budget: Duration,
    mut pass: impl FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut repeat = |budget: Duration| -> Result<f64, Failure> {
        let start = cpu();
        let mut passes = 0;
        loop {
            pass()?;
            passes += 1;
            let used = cpu() - start;
            if used >= budget {
                return Ok(used.as_nanos() as f64 / (passes * rows) as f64);
            }
        }
    };
    repeat(budget / 4)?;
    repeat(budget)
}

fn time_decode(task: &Task, budget: Duration) -> Result<f64, Failure> {
    let mut decoder = task.decoder()?;
    let rows = task.decode(&mut decoder)?.num_rows();
    mean_ns(rows, budget, || {
        black_box(task.decode(&mut decoder)?);
        Ok(())
    })
}

fn time_encode(task: &Task, budget: Duration) -> Result<f64, Failure> {
    let batch = task.decode(&mut task.decoder()?)?;
    let schema = task.written_schema(&batch);
    let batch = RecordBatch::try_new(schema.clone().into(), batch.columns().to_vec())?;
    let mut encoder = WriterBuilder::new(schema)
        .with_fingerprint_strategy(FingerprintStrategy::Id(task.id))
        .build_encoder::<AvroSoeFormat>()?;
    encoder.encode(&batch)?;
    if encoder.flush().bytes()[..] != task.frames[..] {
        return Err("the encoded records differ from the frames".into());
    }
    mean_ns(batch.num_rows(), budget, || {
        encoder.encode(&batch)?;
        black_box(encoder.flush());
        Ok(())
    })
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let (mode, rest) = words
        .split_first()
        .ok_or("expected: rows, decode or encode")?;
    let (place, last) = rest.split_at(rest.len().min(5));
    let task = Task::from(place)?;
    let budget = || -> Result<Duration, Failure> {
        Ok(Duration::from_millis(
            last.first().ok_or("expected: MS")?.parse()?,
        ))
    };
    match mode.as_str() {
        "rows" => rows::print(&task.decode(&mut task.decoder()?)?),
        "decode" => {
            println!("{}", time_decode(&task, budget()?)?);
            Ok(())
        }
        "encode" => {
            println!("{}", time_encode(&task, budget()?)?);
            Ok(())
        }
        other => Err(format!("unknown mode {other}").into()),
    }
}
