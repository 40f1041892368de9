//! A connection to a server that can be cut, closed and redirected.
//!
//! Takes the address of a server; gives its own address that leads there. Promise: after `cut` no byte of an older
//! connection arrives on either side, and after `close` no new connection is accepted.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// The forwarding connection.
#[derive(Debug)]
pub struct CuttableRelay {
    address: SocketAddr,
    state: Arc<Mutex<CuttableRelayState>>,
}

#[derive(Debug, Default)]
struct CuttableRelayState {
    /// The server it leads to; `None` while it is closed.
    leads_to: Option<SocketAddr>,
    open: Vec<TcpStream>,
}

impl CuttableRelay {
    /// Creates a connection to a server.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no line: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no line: {error}"));
        let state = Arc::new(Mutex::new(CuttableRelayState { leads_to: Some(server), open: Vec::new() }));
        let serving = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let mut state = serving.lock();
                let Some(far) = state.leads_to.and_then(|server| TcpStream::connect(server).ok()) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    std::thread::spawn(move || carry(from, to));
                }
                state.open.extend([near, far]);
            }
        });
        Self { address, state }
    }

    /// The address to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection; new ones are accepted.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Cuts every connection and accepts no new one.
    pub fn close(&self) {
        self.state.lock().leads_to = None;
        self.cut();
    }

    /// Redirects new connections to this server. Older connections are cut.
    pub fn lead_to(&self, server: SocketAddr) {
        self.cut();
        self.state.lock().leads_to = Some(server);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 16 * 1024];
    while let Ok(count) = from.read(&mut piece) {
        let Some(piece) = piece.get(..count).filter(|piece| !piece.is_empty()) else { break };
        if to.write_all(piece).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(word: u8) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|mut one| drop(one.write_all(&[word]))));
        address
    }

    fn heard(line: &CuttableRelay) -> Option<u8> {
        let mut byte = [0];
        TcpStream::connect(line.address()).unwrap().read_exact(&mut byte).ok().map(|()| byte[0])
    }

    #[test]
    fn a_line_leads_where_it_was_told_and_nowhere_while_it_is_closed() {
        let line = CuttableRelay::to(echo(1));
        assert_eq!(heard(&line), Some(1));
        line.close();
        assert_eq!(heard(&line), None);
        line.lead_to(echo(2));
        assert_eq!(heard(&line), Some(2));
    }
}
