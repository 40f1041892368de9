//! What the gateway stands on changes while it runs: people hear of it once, a database file that is gone ends it, and new
//! certificates need no restart.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use sluice_api::serve;
use sluice_core::Millis;
use sluice_gateway::loops::{health_watch, housekeeping};
use sluice_gateway::{DiskSpace, FatalGatewayError};
use sluice_store::{AlertFilter, MessageSeverity};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::test_gateway::{OnPostgresServer, TestGateway, TestGatewayDatabase, TestGatewayOn, TestGatewayPlan};

/// The topics of every alert, in the order of the alphabet.
async fn alerts<G: TestGatewayDatabase>(house: &TestGatewayOn<G>) -> Vec<String> {
    let filter = AlertFilter { severity_at_least: MessageSeverity::Info, ..AlertFilter::default() };
    let found = house.gw.store.alerts(filter, None, 50).await.unwrap();
    let mut topics: Vec<String> = found.into_iter().map(|alert| alert.message.topic).collect();
    topics.sort();
    topics
}

fn count(topics: &[String], wanted: &str) -> usize {
    topics.iter().filter(|topic| *topic == wanted).count()
}

/// Looks three times: what is bad is said once.
async fn looked<G: TestGatewayDatabase>(house: &TestGatewayOn<G>) -> Vec<String> {
    for _ in 0..3 {
        health_watch::look(&house.gw).await.unwrap();
    }
    alerts(house).await
}

#[tokio::test]
async fn a_removed_key_a_full_disk_and_a_changed_state_file_are_each_said_once_and_again_after_they_were_well() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    let root = house.folder.path();
    assert_eq!(looked(&house).await, [""; 0], "all is well");

    let key = fs::read_dir(root.join("data/keys")).unwrap().next().unwrap().unwrap().path();
    let aside = root.join("aside");
    for round in 1..=2 {
        fs::rename(&key, &aside).unwrap();
        assert_eq!(looked(&house).await, vec!["keys.unreadable"; round]);
        fs::rename(&aside, &key).unwrap();
        assert_eq!(looked(&house).await.len(), round);
    }

    house.gw.set_disk_space(DiskSpace::Low);
    assert_eq!(count(&looked(&house).await, "disk.low"), 1);
    house.gw.set_disk_space(DiskSpace::None);
    assert_eq!(count(&looked(&house).await, "disk.low"), 2, "nearly full, then full");
    house.gw.set_disk_space(DiskSpace::Enough);
    looked(&house).await;

    let state = root.join("data.state/state.json");
    let whole = fs::read(&state).unwrap();
    fs::remove_file(&state).unwrap();
    assert_eq!(count(&looked(&house).await, "recovery.state_file_changed"), 1);
    let known = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap()["instance"].clone();
    assert_eq!(known(&fs::read(&state).unwrap()), known(&whole), "it was written again");
    fs::write(&state, "{}").unwrap();
    assert_eq!(count(&looked(&house).await, "recovery.state_file_changed"), 2);
    let house = house.restart(Millis::from_secs(1)).await;
    assert!(!house.gw.recovery.is_suspected(), "the next start finds what it needs");
}

#[tokio::test]
async fn a_data_folder_that_is_replaced_is_said_once() {
    let house = TestGatewayOn::<OnPostgresServer>::new(TestGatewayPlan::default()).await;
    if house.database().is_none() {
        return;
    }
    let data = house.folder.path().join("data");
    fs::rename(&data, house.folder.path().join("aside")).unwrap();
    assert_eq!(looked(&house).await, ["data.replaced"]);
    fs::create_dir(&data).unwrap();
    assert_eq!(looked(&house).await, ["data.replaced"; 2], "another folder of that name is news");
    fs::remove_dir(&data).unwrap();
    fs::rename(house.folder.path().join("aside"), &data).unwrap();
    assert_eq!(looked(&house).await.len(), 2);
}

#[tokio::test]
async fn a_database_file_that_is_gone_acknowledges_nothing_and_ends_the_gateway() {
    for part in ["", "-wal"] {
        let house = TestGateway::new(TestGatewayPlan::default()).await;
        housekeeping::step(&house.gw, 0).await.unwrap();
        let file = fs::read_dir(house.folder.path().join("data")).unwrap().flatten();
        let file = file.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "db")).unwrap();
        fs::remove_file(format!("{}{part}", file.display())).unwrap();
        let path = house.path("new");
        let arguments = serde_json::json!({"path": path, "content": "x"});
        let no = house.call("filesystem.write", arguments).await.unwrap_err();
        assert_eq!(no.refusal.code().as_str(), "store.damaged", "{part}");
        assert!(housekeeping::step(&house.gw, 0).await.is_err(), "{part}");
        assert_eq!(house.gw.wait_for_failure().await, FatalGatewayError::Removed, "{part}");
    }
}

/// Writes a certificate for this machine that ends in this year.
fn certify(folder: &Path, year: i32) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(year, 1, 1);
    let cert = params.self_signed(&key).unwrap().pem();
    fs::write(folder.join("cert.pem"), &cert).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    cert
}

/// Whether the listener shows this certificate.
async fn shows(address: std::net::SocketAddr, cert: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok()
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_keeps_the_old() {
    let config = "tls: {cert: cert.pem, key: key.pem}\n";
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    let root = house.folder.path().to_path_buf();
    let first = certify(&root, 2400);
    let bound = serve::bind(&house.gw).await.unwrap();
    let places = [bound.address().unwrap(), bound.stop_address().unwrap()];
    let (stop, stops) = watch::channel(false);
    let mut served = JoinSet::new();
    served.spawn(serve::serve(Arc::clone(&house.gw), bound, stops));
    for place in places {
        assert!(shows(place, &first).await);
    }

    fs::write(root.join("cert.pem"), "broken").unwrap();
    assert_eq!(looked(&house).await, ["tls.refused"]);
    for place in places {
        assert!(shows(place, &first).await, "the old one stays");
    }
    let second = certify(&root, 2401);
    assert_eq!(looked(&house).await.len(), 1);
    for place in places {
        assert!(shows(place, &second).await && !shows(place, &first).await);
    }
    stop.send_replace(true);
    served.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_certificate_that_ends_soon_is_said_once_and_its_end_once_more() {
    let config = "tls: {cert: cert.pem, key: key.pem}\n";
    let house = TestGateway::new(TestGatewayPlan { config: config.into(), ..TestGatewayPlan::default() }).await;
    // The clock of the tests stands in October 2024.
    certify(house.folder.path(), 2025);
    drop(serve::bind(&house.gw).await.unwrap());
    assert_eq!(looked(&house).await, [""; 0], "two months are left");
    house.pass(Millis::from_hours(24 * 55));
    assert_eq!(looked(&house).await, ["tls.expiring"]);
    house.pass(Millis::from_hours(24 * 14));
    assert_eq!(looked(&house).await, ["tls.expired", "tls.expiring"]);
    certify(house.folder.path(), 2400);
    assert_eq!(looked(&house).await.len(), 2, "a new one ends it");
}
