// Package forwarding tests that whatever listproxy does not answer itself passes through it
// unchanged, and that nobody sees through it what the API server would not show them. It holds tests
// only.
//
// Everything runs against a real kube-apiserver, which is asked twice: directly, and through
// listproxy, a process of its own. The API server's own answer is the expected one, whatever it is.
//
//   - There is no kubelet. The API server finds a stand-in of the test (kubelet_test.go) under a
//     Node object; it runs commands on this machine, for the API server only.
//   - The requests of clients in several languages (shapes_test.go), and kubectl's commands, are
//     also tried with the switches for the newest state and for watches on: the answer must be the
//     same, whoever gives it.
//   - Nothing is measured against a clock. Tests wait for what must come, up to a generous
//     deadline.
//
// That streams go on event by event, that both ends may speak in an upgraded connection, and what
// happens when either goes away, is held by the tests of package proxy/forward.
package forwarding
