// Package attacks holds a table of attacks on listproxy's port for clients, with what each must
// get, and runs it against a real API server. That its port for CONNECT leads to the same handler, and
// nowhere else, the tests of package proxy/serve and test/e2e/forwarding show.
//
// # What is done
//
// The same bytes are sent to the API server and to listproxy, as users with different rights, by token
// and by certificate. Over HTTP/1.1 the bytes of the table are written to a TLS connection as they are;
// over HTTP/2 they are put together from frames, since no client library would send most of them.
//
// After each attack, an innocent request without credentials follows on the same connection: the
// follower. Its answer shows where either server believes that the attack ended, and whether
// anything of the attack's identity stays with the connection.
//
// # What must hold
//
//   - The answers (status, headers, bodies, trailers, how many, and how the connection or stream
//     ended) are those of the API server to the same bytes. A few attacks are refused by listproxy
//     itself, though the API server would not refuse them. The table says so ([refused]): these
//     must get a 4xx or a closed connection, and must not reach the API server.
//   - The API server's audit log has the same for both: who asked, impersonating whom, with which
//     verb, for what, with what result. It has neither requests that were answered from memory nor
//     those that were refused, and no other request that might have been smuggled in.
//   - Only users who may list them get a byte of a marker that is in objects of another namespace,
//     and in an object beside the one that may be listed by name.
//   - Whom the API server does not accept learns nothing of the cluster, of the policy and of memory
//     from Cache-Status.
//   - Attacks that are harmless variants of a list are answered from memory (the field hit), which
//     shows that the table covers requests that could go wrong.
//
// Not compared, since they are known to differ: Date, Cache-Status, the headers of the API server's
// flow control on an answer from memory, the revision of a list that is not exact.
//
// # Where to add
//
// An attack that works over both protocols goes to tables_test.go, bytes of HTTP/1.1 only to
// http1_table_test.go, frames to http2_table_test.go, what needs a certificate to
// certificates_table_test.go. Most are called by their bytes. Chapters are test names:
//
//	go test -run 'TestAttacks/by/http1/identity' -v ./test/e2e/attacks
//
// # Crowding out
//
// TestCrowding (Linux only: it needs all of 127.0.0.0/8) has a control plane of its own, and callers
// who ask for more than their share: with made-up tokens, without rights, with streams that are given up
// at once, or with what nobody reads. During each attack another caller works, from another address: it
// lists, watches, writes, and follows what it wrote. It must get everything that it asks for, from memory,
// with every event. Nothing depends on how fast something is. Afterwards the numbers of goroutines and
// descriptors must go back to what they were. Unit tests and test/faults cover reviews that get no answer,
// bodies that trickle, long headers, answers with a window of 0, and chains of certificates.
//
// Some headers are seen neither in an answer nor in the audit log: FuzzForward of package proxy/forward
// shows that the API server does not get them. Other tests of that package show that strangers, whose
// connections kube-apiserver ends (UnauthenticatedHTTP2DOSMitigation), share none with others.
package attacks
