package observe

// The reasons for which listproxy refuses requests, in metrics, traces and the access log. The other reasons are the
// Overloads of proxy/limits.
const (
	// RefusedIdentity means that the caller cannot be identified or impersonated.
	RefusedIdentity = "identity"
	// RefusedTarget means that the target is not a path (400).
	RefusedTarget = "target"
	// RefusedConnect means that a CONNECT came to the wrong port (405), names another server (403), or has a body
	// (400).
	RefusedConnect = "connect"
	// RefusedNoConnect means that a request with another method came to the port for CONNECT (400).
	RefusedNoConnect = "no-connect"
	// RefusedConnection means that the Connection header lists a header that identifies the caller (400).
	RefusedConnection = "connection-header"
	// RefusedUpgrade means that a request with listproxy's own credentials asks for an upgrade to a protocol that no
	// API server of Kubernetes speaks (400).
	RefusedUpgrade = "upgrade"
	// RefusedMalformed means that the header or body is malformed or ended early (400), or came too slowly (504).
	RefusedMalformed = "malformed"
)
