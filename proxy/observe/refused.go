package observe

// The reasons for which listproxy refuses what is malformed or not for it, in metrics, traces and
// the access log. The others are every Overload of proxy/limits.
const (
	// RefusedIdentity means that it is refused because of who sends it.
	RefusedIdentity = "identity"
	// RefusedTarget means that the target is no path (400).
	RefusedTarget = "target"
	// RefusedMisdirected means that it came by a tunnel, and is for another server than the tunnel (421).
	RefusedMisdirected = "misdirected"
	// RefusedConnect is a CONNECT where none is taken (405), to elsewhere (403), or with a body
	// (400).
	RefusedConnect = "connect"
	// RefusedNoConnect is something else than CONNECT at the port for that (400).
	RefusedNoConnect = "no-connect"
	// RefusedConnection means that the Connection header lists a header that says who the caller is (400).
	RefusedConnection = "connection-header"
	// RefusedUpgrade is an upgrade to something that no API server of Kubernetes speaks, in a request
	// with listproxy's own credentials (400).
	RefusedUpgrade = "upgrade"
	// RefusedMalformed means that the request's header or body is malformed or ended early (400), or
	// the body came too slowly (504).
	RefusedMalformed = "malformed"
)

// RefusalReasons returns every reason for which listproxy itself refuses a request, for
// documentation and tests.
func RefusalReasons() []string {
	return []string{
		RefusedIdentity, RefusedTarget, RefusedMisdirected, RefusedConnect, RefusedNoConnect, RefusedConnection,
		RefusedUpgrade, RefusedMalformed,
	}
}
