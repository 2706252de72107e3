// Package attacks has a table of attacks on listproxy's port for clients, with the outcome that each must have, and runs the
// table against a real kube-apiserver. The tests of package proxy/serve and of test/e2e/forwarding show that the port for
// CONNECT leads to the same handler, and nowhere else.
//
// # What is done
//
// The same bytes are sent to kube-apiserver and to listproxy, by users with different rights, with tokens and with
// certificates. Over HTTP/1.1 the bytes of the table are written to a TLS connection as they are. Over HTTP/2 they are
// put together from frames, since no client library would send most of them.
//
// After each attack, an innocent request without credentials follows on the same connection: the follower. Its answer shows
// where a server believes that the attack ended, and whether the attack's identity stays with the connection.
//
// An attempt is an attack that was sent once, and its outcome: all that came back on its connection. An account is what
// kube-apiserver's audit log says of one request. A hit is an answer from memory.
//
// # What must hold
//
//   - The answers (status, headers, bodies, trailers, how many, and how the connection or stream ended) are kube-apiserver's
//     to the same bytes. A few attacks are refused by listproxy itself, though kube-apiserver would not refuse them. The
//     table says so ([refused]). These attacks must get a 4xx or a closed connection, and must not reach kube-apiserver.
//   - kube-apiserver's audit log has the same for both: user, impersonated user, verb, object and status. It has neither
//     requests that were answered from memory nor those that were refused, and no request that was smuggled in.
//   - Some objects have a marker in their text: all in team-b, for example, and a ConfigMap beside the one that a user may list
//     by its name. Only users who may list such an object get a byte of the marker.
//   - A user whom kube-apiserver does not accept learns nothing of the cluster, the policy and memory from Cache-Status.
//   - Attacks that are harmless variants of a list come from memory (wantHitFor), which shows that the table covers requests
//     that could go wrong.
//
// Date, Cache-Status, the revision of a list that is not exact, and on an answer from memory the headers of kube-apiserver's
// flow control are known to differ, and are not compared.
//
// # Where to add
//
// An attack is a row in a file *_table_test.go or, if no such file fits, in tables_test.go. Bytes of HTTP/1.1 go to
// http1_table_test.go, frames to http2_table_test.go. An attack without a name is named after what it sends. Chapters are
// test names:
//
//	go test -run 'TestAttacks/by/http1/identity' -v ./test/e2e/attacks
//
// # What is tested elsewhere
//
// Unit tests and test/faults cover callers who ask for too much: reviews without an answer, slow bodies, long headers, answers
// with a window of 0, chains of certificates, silent connections, and a crowd at a resource that is being loaded.
//
// Some headers are seen neither in an answer nor in the audit log: FuzzForward of package proxy/forward shows that
// kube-apiserver does not get them. Other tests of that package show that requests of unknown callers, after which
// kube-apiserver ends a connection (UnauthenticatedHTTP2DOSMitigation), share no connection with others.
package attacks
