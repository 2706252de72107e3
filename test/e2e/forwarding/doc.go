// Package forwarding tests that a request which listproxy does not answer itself passes through it unchanged, and that
// nobody sees through listproxy what kube-apiserver would not show them.
//
// Everything runs against a real kube-apiserver, which is asked twice: directly, and through a listproxy process. The
// expected answer is kube-apiserver's own.
//
//   - There is no kubelet. A Node object leads kube-apiserver to a stand-in (kubelet_test.go), which runs commands on this
//     machine, for kube-apiserver only.
//   - The requests of clients in several languages (shapes_test.go) and kubectl's commands are also sent to a listproxy with
//     --consistent-lists and --watches. The answer must be the same from memory and forwarded.
//   - Nothing is measured against a clock. Tests wait for what must come, up to a generous deadline.
//
// The tests of package proxy/forward show that streams pass event by event, that both ends may speak in an upgraded
// connection, and what happens when either end goes away.
package forwarding
