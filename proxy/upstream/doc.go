// Package upstream is the way to the API server: where it is, the connections on which callers'
// requests and listproxy's own go there, which of its addresses are up (--upstream), and which
// callers it has accepted.
package upstream
