//! What a service must be able to do to stand behind the gate, and one module per service.
