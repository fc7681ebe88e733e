//! Rows of a batch as lines of JSON; 64-bit integers are decimal text, so that a reader keeps them.
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::DataType;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for symbol in text.chars() {
        match symbol {
            '"' | '\\' => out.extend(['\\', symbol]),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

fn value(array: &dyn Array, row: usize, out: &mut String) -> Result<(), Box<dyn Error>> {
    if array.is_null(row) {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        DataType::Utf8 => quote(array.as_string::<i32>().value(row), out),
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(row))?,
        DataType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row))?,
        DataType::Int64 => write!(out, "\"{}\"", array.as_primitive::<Int64Type>().value(row))?,
        DataType::Dictionary(_, _) => {
            let symbols = array.as_dictionary::<Int32Type>();
            let index = symbols.keys().value(row) as usize;
            quote(symbols.values().as_string::<i32>().value(index), out);
        }
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            out.push('[');
            for item in 0..items.len() {
                if item > 0 {
                    out.push(',');
                }
                value(&items, item, out)?;
            }
            out.push(']');
        }
        DataType::Struct(_) => fields(array.as_struct(), row, out)?,
        other => return Err(format!("no row form of {other}").into()),
    }
    Ok(())
}

fn fields(array: &StructArray, row: usize, out: &mut String) -> Result<(), Box<dyn Error>> {
    out.push('{');
    for (index, (field, column)) in array.fields().iter().zip(array.columns()).enumerate() {
        if index > 0 {
            out.push(',');
        }
        quote(field.name(), out);
        out.push(':');
        value(column, row, out)?;
    }
    out.push('}');
    Ok(())
}

/// Prints one line for each row.
pub fn print(batch: &RecordBatch) -> Result<(), Box<dyn Error>> {
    let all = StructArray::from(batch.clone());
    let mut stdout = std::io::stdout().lock();
    let mut line = String::new();
    for row in 0..all.len() {
        line.clear();
        fields(&all, row, &mut line)?;
        line.push('\n');
        stdout.write_all(line.as_bytes())?;
    }
    Ok(())
}
