//! Keys of monitoring and of devices; and vendors whose keys have no mark of their own.

use super::{Format, Proof, row};

#[rustfmt::skip] // A table: one row, one line.
pub(super) static FORMATS: &[Format] = &[
    row("newrelic.key", "New Relic key", &["NRAK-", "NRII-", "NRIQ-", "NRRA-", "NRAA-", "NRSP-", "NRBR-", "NRJS-", "NRIK-"], r"NR(?:AK|II|IQ|RA|AA|SP|BR|JS|IK)-[\w-]{15,45}"),
    row("newrelic.license", "New Relic licence key", &["NRAL"], r"(?:[a-z]{2}\d{2}xx)?[0-9a-f]{30,36}(?:FFFF)?NRAL").back(46),
    row("newrelic.pixie", "Pixie key", &["px-api-", "px-dep-"], r"px-(?:api|dep)-[0-9a-f]{8}-[0-9a-f-]{27}"),
    row("grafana.key", "Grafana key", &["eyJrIjoi"], r"eyJrIjoi[A-Za-z0-9]{60,400}={0,2}").proof(Proof::None),
    row("grafana.cloud", "Grafana cloud token", &["glc_"], r"glc_[A-Za-z0-9+/]{32,400}={0,2}"),
    row("grafana.service", "Grafana service account token", &["glsa_"], r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}"),
    row("sentry.token", "Sentry token", &["sntrys_", "sntryu_", "sntrya_", "sntryi_"], r"sntrys_eyJ[A-Za-z0-9+/=_-]{80,}|sntry[uai]_[0-9a-f]{64}"),
    row("dynatrace.token", "Dynatrace token", &["dt0"], r"dt0[a-z]\d{2}\.[A-Z0-9]{8,24}\.[A-Za-z0-9]{60,64}"),
    row("honeycomb.key", "Honeycomb key", &["hcaik_", "hcaic_", "hcbik_", "hcxik_", "hcamk_"], r"hc[a-z](?:ik|ic|mk)_[a-z0-9]{58}"),
    row("axiom.token", "Axiom token", &["xaat-", "xapt-"], r"xa[ap]t-[0-9a-f]{8}-[0-9a-f-]{27}"),
    row("checkly.key", "Checkly key", &["cu_"], r"cu_[0-9a-f]{32}"),
    row("uptimerobot.key", "UptimeRobot key", &["ur", "m7"], r"ur\d{5,9}-[0-9a-f]{24}|m\d{6,12}-[0-9a-f]{24}"),
    row("pagerduty.key", "PagerDuty key", &["u+", "y_"], r"[uy][+_][A-Za-z0-9_+-]{18}\b").proof(Proof::Near(&["pagerduty", "pager_duty", "pd_"])),
    row("datadog.client", "Datadog key pair in a header", &["DD-API-KEY", "DD-APPLICATION-KEY", "DD_API_KEY", "DD_APP_KEY", "dd-api-key"], r"(?i:dd[-_](?:api|app(?:lication)?)[-_]key)\W{1,6}[0-9a-f]{32,40}\b"),
    row("logfire.token", "Logfire token", &["pylf_v"], r"pylf_v\d_[a-z]{2}_[A-Za-z0-9]{40,50}"),
    row("sumologic.key", "Sumo Logic id with its name", &["sumo", "SUMO", "Sumo"], r"(?i:sumo)[\w .-]{0,24}\W{1,8}(?:su[A-Za-z0-9]{12}|[A-Za-z0-9]{64})\b").proof(Proof::Random),
    row("splunk.token", "Splunk token", &["Splunk ", "splunk"], r"(?i:splunk)[\w -]{0,16}\W{0,4}[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{22}"),
    row("influx.token", "InfluxDB token", &["INFLUX", "influx"], r"(?i:influx\w{0,16}token)\W{1,6}[\w-]{86}=="),
    row("saucelabs.key", "Sauce Labs key", &["SAUCE_", "sauce", "Sauce"], r"(?i:sauce)[\w.-]{0,24}\W{1,6}[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    row("adafruit.key", "Adafruit IO key", &["aio_"], r"aio_[A-Za-z0-9]{28}"),
    row("blynk.token", "Blynk token", &["blynk", "BLYNK", "Blynk"], r"(?i:blynk)[^\n]{0,80}?(?:token=|AUTH_TOKEN\W{1,6}|oa2-client-id_[\w-]{32}:)[\w-]{32,40}"),
    row("thingsboard.token", "ThingsBoard token", &["/api/v1/"], r"/api/v1/[a-z0-9]{20}/(?:telemetry|attributes|rpc)").proof(Proof::None),
    row("thingsboard.provision", "ThingsBoard provisioning", &["provisionDevice"], r"provisionDevice(?:Key|Secret)\W{1,12}[a-z0-9]{20}\b"),
    row("truenas.key", "TrueNAS key", &["login_with_api_key", "truenas", "TRUENAS"], r"(?i:login_with_api_key|truenas)[^\n]{0,60}?\b\d{1,3}-[A-Za-z0-9]{64}\b").proof(Proof::None),
    row("particle.token", "Particle token", &["api.particle.io", "particle", "PARTICLE"], r"(?is:particle).{0,120}?(?:access_token=|Bearer )[0-9a-f]{40}\b").proof(Proof::None),
    row("nasa.key", "NASA key", &["api.nasa.gov"], r"api\.nasa\.gov[^\s'\x22]{0,120}api_key=[A-Za-z0-9]{40}"),
    row("esphome.key", "ESPHome encryption key", &["encryption:"], r"encryption:\s{1,12}key:\s{0,3}.?[A-Za-z0-9+/]{43}="),
    row("wireguard.key", "WireGuard private key", &["PrivateKey", "PresharedKey", "privatekey"], r"(?i:private_?key|presharedkey)\s{0,3}[=:]\s{0,3}.?[A-Za-z0-9+/]{43}="),
    row("jwt", "JSON Web Token", &["eyJ"], r"eyJ[\w-]{10,}\.(?:eyJ)?[\w-]{10,}\.[\w-]{10,}").proof(Proof::Token),
    row("jwt.secret", "secret of JSON Web Tokens", &["jwt", "JWT"], r#"(?is:jwt)\W{1,12}(?:_?secret(?:_?key)?|_?signing_?key)["']?\s{0,3}[:=]\s{0,3}["']?[\w+/=-]{12,}"#),
];

/// Vendors whose keys are plain hex, base 62 or a UUID. Their name, a word such as `key`, and a random value in
/// one line are a finding. In lower case, without punctuation.
#[rustfmt::skip] // A table.
pub(in crate::leak) static VENDORS: &[&str] = &[
    "abstractapi", "accuweather", "activecampaign", "agora", "airbrake", "airship", "aiven", "algolia", "alienvault", "alphavantage",
    "amplitude", "appcenter", "appcues", "appdynamics", "appsflyer", "artifactory", "assemblyai", "atera", "auth0", "autopilot",
    "aws", "azure", "bamboohr", "baremetrics", "beamer", "binance", "bing", "bintray", "bitfinex", "bitly", "bitmex", "bittrex", "bitbucket",
    "blynk", "braintree", "branchio", "browserstack", "bugsnag", "bybit", "calendly", "campaignmonitor", "censys", "chargify", "chatwork",
    "clarifai", "clearbit", "clicksend", "cloudflare", "cloudinary", "coda", "codacy", "codeclimate", "codecov", "codemagic", "codeship", "cohere",
    "coinapi", "coinbase", "coinmarketcap", "confluent", "consul", "convertkit", "coveralls", "crowdin", "cryptocompare", "customerio",
    "datadog", "deepgram", "deepl", "deepseek", "delighted", "deviantart", "discord", "disqus", "docusign", "dropbox", "droneci", "dwolla",
    "edamam", "elastic", "etherscan", "etsy", "eventbrite", "exchangerate", "facebook", "fastly", "filestack", "finnhub", "firebase", "fivetran",
    "flickr", "foursquare", "freshbooks", "freshdesk", "front", "fullstory", "geoapify", "getresponse", "giphy", "github", "gitlab", "gitter",
    "google", "gotowebinar", "grafana", "graphhopper", "hackerone", "harvest", "heap", "hellosign", "helpscout", "heroku", "hetzner", "hootsuite",
    "hotjar", "hubspot", "hunter", "hypertrack", "ibm", "imgur", "infura", "insightly", "instagram", "intercom", "ipinfo", "ipstack", "iterable",
    "jenkins", "jfrog", "jira", "jumpcloud", "keen", "kickbox", "klaviyo", "kraken", "kucoin", "lastfm", "launchdarkly", "line", "linkedin", "linode",
    "lob", "localytics", "logdna", "loggly", "logz", "looker", "mailchimp", "mailgun", "mailjet", "mapbox", "mapquest", "marketo", "mattermost",
    "maxmind", "meraki", "messagebird", "mistral", "mixpanel", "moralis", "mux", "nasa", "netlify", "newrelic", "newsapi", "ngrok", "nexmo", "noaa", "nylas",
    "octopus", "okta", "omdb", "onesignal", "opencage", "openweather", "opsgenie", "optimizely", "oura", "pagerduty", "particle", "paymongo", "paypal",
    "pendo", "pinata", "pipedrive", "pivotal", "pixabay", "plaid", "planetscale", "plivo", "polygon", "postmark", "prismic", "pubnub", "pushbullet",
    "pusher", "pushover", "qualtrics", "quickbooks", "raygun", "razorpay", "recaptcha", "recurly", "redis", "rapidapi", "rollbar", "salesforce", "sauce",
    "scrapingbee", "screwdriver", "segment", "sendbird", "sentry", "serpapi", "serper", "shodan", "signalwire", "snyk", "sonar", "sonarcloud",
    "sparkpost", "splunk", "spotify", "spoonacular", "squareup", "stackexchange", "statuspage", "strava", "stripe", "sumologic", "surveymonkey", "sumo",
    "teamwork", "telegram", "telnyx", "thingsboard", "ticketmaster", "tiingo", "tmdb", "todoist", "tomtom", "transifex", "travis", "trello", "tumblr",
    "twelvedata", "twilio", "twitch", "twitter", "typeform", "unsplash", "uploadcare", "urlscan", "vercel", "vimeo", "virustotal", "vonage", "vultr",
    "wakatime", "walletconnect", "wandb", "weatherapi", "weatherbit", "webflow", "wepay", "wistia", "wrike", "xero", "yahoo", "yelp", "youtube", "zapier",
    "zendesk", "zenhub", "zoho", "zoom", "zillow",
];
