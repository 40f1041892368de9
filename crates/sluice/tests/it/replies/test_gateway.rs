//! A gateway that asks by mail, in a temporary folder, with a clock that moves only when told.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_config::{Config, ConfigContext};
use sluice_core::ids::{KeyId, MessageId, RequestId, SecretName};
use sluice_core::{
    Actor, AgentName, ApprovalId, Clock as _, Entropy as _, GatewayDeps, Millis, PersonName, ServiceName, UtcMillis,
};
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue};
use sluice_gateway::channels::Channel;
use sluice_gateway::channels::email::EmailChannel;
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::loops;
use sluice_gateway::loops::outbox::OutboxLoop;
use sluice_gateway::open::open;
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, principal};
use sluice_gateway::{Gateway, corridor};
use sluice_services::workers::WorkerProgram;
use sluice_store::{AccessKeyKind, AlertFilter, ClientApprovalRequest, IssueKey, SubmitClientRequest};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;

use super::mail_server::{TestMailServer, TxtNameServer, fresh};

/// Ids that start with the house's time, as real ones do.
#[derive(Debug)]
struct RepliesTestIds {
    clock: ManualClock,
    random: SeededEntropy,
}

impl sluice_core::Ids for RepliesTestIds {
    fn mint(&self) -> u128 {
        let millis = u128::try_from(self.clock.now().as_millis()).unwrap();
        let mut random = [0; 16];
        self.random.fill(&mut random);
        millis << 80 | u128::from_be_bytes(random) >> 48
    }
}

/// How it is set up.
pub struct RepliesTestPlan {
    /// Further keys of `email`, in one line.
    pub email: String,
    /// Further people who are asked, as items of a list.
    pub people: String,
    /// Port of the mailbox; that of the post office unless said.
    pub port: Option<u16>,
    /// The highest risk that may be approved by mail.
    pub ceiling: &'static str,
}

impl Default for RepliesTestPlan {
    fn default() -> Self {
        Self { email: "imap_security: \"off\"".into(), people: String::new(), port: None, ceiling: "high" }
    }
}

/// The gateway.
pub struct RepliesTestGateway {
    pub post: Arc<TestMailServer>,
    pub gw: Arc<Gateway>,
    pub clock: ManualClock,
    pub email: Arc<EmailChannel>,
    /// Answers as long as the house stands.
    _dns: TxtNameServer,
    /// Who is asked.
    pub ana: String,
    /// Where answers arrive.
    pub replies: String,
    folder: tempfile::TempDir,
    agent_key: String,
    world: GatewayDeps,
    asked: u32,
}

/// A question as the person got it.
pub struct ApprovalTestMessage {
    pub approval: ApprovalId,
    pub reply_to: String,
    pub subject: String,
    pub message_id: String,
    pub text: String,
}

fn operator() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

impl RepliesTestGateway {
    pub async fn new(post: Arc<TestMailServer>, plan: RepliesTestPlan) -> Self {
        let (ana, replies) = (fresh("ana"), fresh("replies"));
        let (ana, replies) = (format!("{ana}@example.test"), format!("{replies}@example.test"));
        let dns = post.dns();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("policies/agents")).unwrap();
        std::fs::create_dir_all(root.join("work")).unwrap();
        std::fs::write(root.join("policies/org.yaml"), "defaults: {tier: approval_required}\n").unwrap();
        std::fs::write(root.join("policies/agents/clerk.yaml"), "rules: []\n").unwrap();
        std::fs::write(root.join("smtp"), post.word("password")).unwrap();
        let starttls = plan.email.contains("starttls") || plan.email.contains("off");
        let port = plan.port.unwrap_or_else(|| post.port(if starttls { "imap" } else { "imaps" }));
        let text = format!(
            "node: test\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\nsandbox: degraded\n\
             disk: {{low: 1MB/0%, stop: 1MB/0%}}\nfilesystem: {{roots: [{{path: work, agents: all}}]}}\nbatch: {{services: {{filesystem: \"off\"}}}}\n\
             approvals: {{people: [{{name: ana, email: {ana}}}{}], remind_after: 0s, email_ceiling: {}, prompts_per_hour: 1000, prompts_per_agent: 1000}}\n\
             email: {{smtp_host: localhost, smtp_port: {}, smtp_user: gate@example.test, smtp_password_file: smtp, \
             from: gate@example.test, reply_to: {replies}, imap_host: localhost, imap_port: {port}, \
             imap_secret: replies, ca_file: {}, dns: [\"{}\"], {}}}\n",
            plan.people,
            plan.ceiling,
            post.port("smtp"),
            post.word("ca"),
            dns.address,
            plan.email,
        );
        std::fs::write(root.join("sluice.yaml"), text).unwrap();
        // Later than the post office's own clock, so that nothing it has is from the future.
        let clock = ManualClock::at(UtcMillis::from_millis(1_795_000_000_000));
        let world = GatewayDeps {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(RepliesTestIds { clock: clock.clone(), random: SeededEntropy::new(8) }),
            entropy: Arc::new(SeededEntropy::new(7)),
            release: "0.0.0",
        };
        let gw = Self::build(root, &world).await;
        let agent = AgentName::new("clerk").unwrap();
        gw.store.add_agent(agent.clone(), String::new(), operator()).await.unwrap();
        let token = KeyToken::generate(TokenKind::Agent, world.entropy.as_ref());
        let id = KeyId::from_bits(world.ids.mint());
        let kind = AccessKeyKind::Agent(agent);
        let new = IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: operator() };
        gw.store.issue_key(new).await.unwrap();
        let scope = SecretScope::new(vec!["approvals.replies".into()], &["localhost".to_owned()]).unwrap();
        let value = SecretValue::new(post.word("password").as_bytes().to_vec());
        let new = NewSecretValue { value, kind: None, scope: Some(scope), overlap: Millis::ZERO };
        gw.vault.set(&SecretName::new("replies").unwrap(), new, operator()).await.unwrap();
        loops::start(&gw, "0.0.0").await.unwrap();
        let email = Arc::new(EmailChannel::new(&gw.config.email).unwrap());
        let agent_key = token.expose().to_owned();
        Self { post, gw, clock, email, _dns: dns, ana, replies, folder, agent_key, world, asked: 0 }
    }

    async fn build(root: &Path, world: &GatewayDeps) -> Arc<Gateway> {
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        let (config, _) =
            Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap_or_else(|why| panic!("{why}"));
        let gw = open(config, world).await.unwrap().0;
        let program = WorkerProgram::at(Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
        gw.workers.open(program, &gw.config, Arc::clone(&world.clock)).unwrap();
        gw
    }

    /// The gateway dies and comes back.
    pub async fn restart(mut self) -> Self {
        drop(Arc::into_inner(self.email).expect("nobody listens any more"));
        drop(Arc::into_inner(self.gw).expect("nothing else holds the gateway"));
        self.clock.restart(Millis::from_secs(5));
        self.gw = Self::build(self.folder.path(), &self.world).await;
        loops::start(&self.gw, "0.0.0").await.unwrap();
        self.email = Arc::new(EmailChannel::new(&self.gw.config.email).unwrap());
        self
    }

    /// The agent wants something, and the person gets a letter about it.
    pub async fn ask(&mut self) -> ApprovalTestMessage {
        self.asked += 1;
        let path = self.folder.path().join(format!("work/{}.txt", self.asked)).display().to_string();
        self.ask_for("filesystem.write", json!({"path": path, "content": "x"})).await
    }

    /// The agent wants this, and the person gets a letter about it.
    pub async fn ask_for(&mut self, capability: &str, arguments: Value) -> ApprovalTestMessage {
        let wish = json!({"capability": capability, "arguments": arguments, "wait_ms": 0});
        let wish: CallOptions = serde_json::from_value(wish).unwrap();
        let principal = principal(&self.gw, &self.agent_key).unwrap();
        let request = RequestId::from_bits(self.world.ids.mint());
        corridor::walk(&self.gw, CallRequest { principal, door: "test", request, session: None, wish }).await.unwrap();
        self.letter("Approve?").await
    }

    /// A client wants to do something by itself, and the person gets a letter about it.
    pub async fn ask_as_client(&mut self, preview: &str) -> ApprovalTestMessage {
        let request = ClientApprovalRequest {
            client: "0123456789ab".into(),
            session: "s".into(),
            action_type: "exec_cmd".into(),
            title: "Run it".into(),
            preview: preview.into(),
            options: Vec::new(),
            channel: None,
            place: None,
        };
        let new = SubmitClientRequest {
            approval: ApprovalId::from_bits(self.world.ids.mint()),
            message: MessageId::from_bits(self.world.ids.mint()),
            agent: AgentName::new("clerk").unwrap(),
            service: ServiceName::new("approvals").unwrap(),
            request,
            name: None,
            expiry: Millis::from_hours(1),
        };
        self.gw.store.submit_client_request(new).await.unwrap();
        self.letter("Approve?").await
    }

    /// The newest letter whose title begins like this, after everything was sent.
    pub async fn letter(&self, title: &str) -> ApprovalTestMessage {
        self.show().await;
        let mails = self.post.inbox(&self.ana);
        let text = mails.iter().map(|(_, text)| text.replace("\r\n", "\n")).rfind(|text| text.contains(title));
        let text = text.expect("a letter");
        let header = |name: &str| {
            let line = text
                .replace("\n ", " ")
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_else(|| panic!("{name} in {text}"))
                .to_owned();
            line[name.len() + 1..].trim().to_owned()
        };
        let subject = header("Subject");
        let id = subject.split(['[', ']']).nth(1).unwrap().to_owned();
        ApprovalTestMessage {
            approval: id.parse().unwrap(),
            reply_to: header("Reply-To"),
            message_id: header("Message-ID"),
            subject,
            text,
        }
    }

    /// Letters and outcomes go out.
    pub async fn show(&self) {
        let channels: Vec<Arc<dyn Channel>> = vec![Arc::<EmailChannel>::clone(&self.email)];
        OutboxLoop::new(channels).step(&self.gw).await.unwrap();
    }

    /// What a mail program makes of an answer.
    pub fn reply(&self, letter: &ApprovalTestMessage, body: &str) -> String {
        format!(
            "From: Ana <{}>\nTo: {}\nSubject: Re: {}\nDate: Tue, 17 Nov 2026 10:00:00 +0000\nMessage-ID: <{}@example.test>\n\
             In-Reply-To: {}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\n{body}\n",
            self.ana,
            letter.reply_to,
            letter.subject,
            fresh("m"),
            letter.message_id
        )
    }

    /// The person's own server signs it and hands it over.
    pub fn send(&self, mail: &str) {
        self.send_signed(mail, json!({"dkim": self.post.dkim("example.test")}));
    }

    pub fn send_signed(&self, mail: &str, wish: Value) {
        self.put(&self.post.signed(mail, wish));
    }

    /// Into the mailbox, whatever it says.
    pub fn put(&self, mail: &[u8]) {
        self.post.deliver(&self.ana, &self.replies, mail);
    }

    /// What has come is acted on.
    pub async fn look(&self) {
        self.email.process_new_replies(&self.gw).await.unwrap_or_else(|fault| panic!("{fault}"));
    }

    pub async fn state(&self, approval: ApprovalId) -> &'static str {
        self.gw.store.approval(approval).await.unwrap().unwrap().approval.state.word()
    }

    /// Why mails were not heard, all of them in order.
    pub async fn refused(&self) -> Vec<String> {
        let facts = self.facts().await;
        let refused = facts.iter().filter(|fact| fact["kind"] == "channel.refused");
        refused.map(|fact| fact["code"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Everything on record.
    pub async fn facts(&self) -> Vec<Value> {
        let mut facts = Vec::new();
        for (log, head) in self.gw.store.logs().await.unwrap() {
            for sealed in self.gw.store.entries(log, 0, u32::try_from(head.size).unwrap()).await.unwrap() {
                let entry: Value = serde_json::from_slice(&sealed.body).unwrap();
                facts.push(entry["fact"].clone());
            }
        }
        facts
    }

    /// Topics of all alerts.
    pub async fn alerts(&self) -> Vec<String> {
        let alerts = self.gw.store.alerts(AlertFilter::default(), None, 1_000).await.unwrap();
        alerts.into_iter().map(|alert| alert.message.topic).collect()
    }

    /// Mails the person got beside letters, as text.
    pub fn told(&self) -> Vec<String> {
        let unfolded = |text: String| text.replace("\r\n", "\n").replace("=\n", "");
        let mails = self.post.inbox(&self.ana).into_iter().map(|(_, text)| unfolded(text));
        mails.filter(|text| !text.contains("Approve?")).collect()
    }
}

impl RepliesTestGateway {
    /// Under which name the database keeps how far was read.
    pub async fn mark(&self) -> String {
        use sha2::Digest as _;
        let email = &self.gw.config.email;
        let text = format!("{}\0localhost\0{}\0INBOX", self.replies, email.imap_port);
        let name = format!("email:{}", sluice_core::hex::encode(&sha2::Sha256::digest(text)[..8]));
        assert!(self.gw.store.channel_mark(&name).await.unwrap().is_some(), "nothing was read yet");
        name
    }

    /// Another password for the mailbox.
    pub async fn password(&self, value: &str) {
        let value = SecretValue::new(value.as_bytes().to_vec());
        let new = NewSecretValue { value, kind: None, scope: None, overlap: Millis::ZERO };
        self.gw.vault.set(&SecretName::new("replies").unwrap(), new, operator()).await.unwrap();
    }
}
