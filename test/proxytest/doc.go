// Package proxytest has what the tests of several packages of the proxy share: logs, a clock, HTTP clients and servers,
// and certificates.
//
// Each of these starts an HTTP server, which runs until the test ends. A pipe is a connection in memory, for tests in a bubble
// of testing/synctest.
//
//	function                 serves               over
//	StartUpstream            a handler            TCP and TLS, and asks for client certificates as kube-apiserver does
//	Serve                    an http.Server       TCP and TLS
//	StartInPipes             a httptest.Server    pipes and TLS
//	StartWithoutTLSInPipes   a httptest.Server    pipes
//	ServeInPipes             an http.Server       pipes
//	ServePipe                a handler            pipes, with a client that has the smallest HTTP/2 windows
package proxytest
