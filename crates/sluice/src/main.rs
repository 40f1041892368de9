//! sluice
mod demo;
mod export;
mod system;

fn main() -> anyhow::Result<()> {
    demo::run(&mut std::io::stdout().lock(), demo::Telling::default())
}
