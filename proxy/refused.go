package proxy

// The reasons for which listproxy refuses what is malformed or not for it, in metrics, traces and the access log.
// The others are reasonIdentity and every [Overload].
const (
	// refusedTarget: the target is no path (400).
	refusedTarget = "target"
	// refusedMisdirected: it came by a tunnel, and is for another server than the tunnel (421).
	refusedMisdirected = "misdirected"
	// refusedConnect: a CONNECT where none is taken (405), to elsewhere (403), or with a body (400).
	refusedConnect = "connect"
	// refusedNoConnect: something else than CONNECT at the port for that (400).
	refusedNoConnect = "no-connect"
	// refusedBody: the body is longer than --max-body-bytes (413).
	refusedBody = "body-too-large"
	// refusedConnection: the Connection header lists a header that says who the caller is (400).
	refusedConnection = "connection-header"
	// refusedSegments: dot segments, in a request with listproxy's own credentials (400).
	refusedSegments = "dot-segments"
	// refusedMalformed: the request's header or body is malformed or ended early (400).
	refusedMalformed = "malformed"
)

// RefusalReasons returns every reason for which listproxy itself refuses a request, for documentation and tests.
func RefusalReasons() []string {
	reasons := []string{
		reasonIdentity, refusedTarget, refusedMisdirected, refusedConnect, refusedNoConnect, refusedBody,
		refusedConnection, refusedSegments, refusedMalformed,
	}
	for _, overload := range overloads() {
		reasons = append(reasons, string(overload))
	}
	return reasons
}
