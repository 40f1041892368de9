//! Scratch driver for profiling.
#![allow(dead_code)]
#[path = "../src/load.rs"]
mod load;
use load::*;
use sluice_core::Span;
use sluice_store::Admitted;
use std::sync::Arc;
use std::time::Instant;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let bench = if args[1] == "pg" { Bench::server()?.unwrap() } else { Bench::file()? };
    let n: usize = args[2].parse()?;
    let writers: usize = args.get(3).map_or(64, |a| a.parse().unwrap());
    let runtime = runtime()?;
    let mut mails = Mails::new(Span::from_hours(1));
    for _ in 0..3 {
        let piles = mails.dealt(writers, n / writers)?;
        let t = Instant::now();
        let work = |admission| {
            let store = Arc::clone(&bench.store);
            async move {
                let admitted = store.admit(admission).await?;
                anyhow::ensure!(matches!(admitted, Admitted::Held { .. }), "not held but {admitted:?}");
                Ok(())
            }
        };
        all_at_once(&runtime, piles, work)?;
        println!("{} /s", n as f64 / t.elapsed().as_secs_f64());
    }
    Ok(())
}
