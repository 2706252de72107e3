// Package forwarding tests that whatever listproxy does not answer itself passes through it
// untouched and as it comes, and that nobody sees through it what the API server would not show
// them. It holds tests only.
//
// Everything runs against a real kube-apiserver, which is asked twice: straight, and through
// listproxy, a process of its own. The API server's own answer is what is expected, whatever it
// is; see door and same in door_test.go.
//
//   - What never ends or speaks both ways (watches, logs, exec) is tested by turns: a side acts
//     only after it has seen the other side's act, so whatever holds back a part of a stream stops
//     the test instead of passing late.
//   - There is no kubelet. A stand-in of the test (kubelet_test.go) is what the API server finds
//     under a Node object; it runs commands on this machine, for the API server only.
//   - What clients of several languages send (shapes_test.go), and kubectl's commands, are also
//     tried with the switches for the newest state and for watches on: whoever answers, the answer
//     is the same.
//   - Nothing is measured against a clock. A wait is for something that must come and is ended by
//     patience; the one bound in time that is tested, how long a revoked right may be used, is
//     tested as an order of events.
package forwarding
