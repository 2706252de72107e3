// Package attacks holds a table of attacks on listproxy's front, with what each must get, and the
// rig that runs it against a real API server.
//
// # What is done
//
// The same bytes are sent to the API server and through each door of listproxy, as users of
// different rights: whoever may do all, who may list pods in one namespace, who may list one
// config map by its name, who may impersonate somebody, who may nothing, who has no credentials,
// and who has bad ones. Bytes are meant literally: over HTTP/1.1 they are written to a TLS
// connection as the table has them, over HTTP/2 they are made of frames, since no client library
// would send most of them.
//
// Behind each attack, on the same connection, comes an innocent request without credentials: the
// follower. It tells where either server believes that the attack ended, and whether anything of
// the attack's identity stays with the connection.
//
// # What must hold
//
//   - The answers (status, headers, bodies, trailers, how many, and how the connection or stream
//     ended) are those of the API server to the same bytes. That is the default. The few attacks
//     that listproxy refuses for itself, though the API server would not, say so in the table
//     ([refused]); they must get a 4xx or a closed connection, and must not arrive.
//   - The API server's audit log tells the same of both: by whom, on whose behalf, with which verb,
//     on what, with what result. A request that was answered from memory is not in it; one that
//     was refused is not either; nothing else is, that a request may have been smuggled in.
//   - Nobody but who may list it gets a byte of a marker that is in objects of another namespace,
//     and in an object beside the one that may be listed by name.
//   - Attacks that are harmless variants of a list are answered from memory, so that the table is
//     known to ask what could go wrong (the field hit).
//
// What is known to differ and not compared: Date, Cache-Status, the headers of the API server's
// flow control on an answer from memory, the revision of a list that is not exact.
//
// # Where to add
//
// An attack that can be said over both protocols is an attack of tables_test.go; bytes that are
// only HTTP/1.1's go to http1_table_test.go, frames to http2_table_test.go. Names become test
// names:
//
//	go test -run 'TestAttacks/by/http1/identity' -v ./test/e2e/attacks
//
// A door is a way to open a TLS connection to the handler; see [doors]. There are two: listproxy as
// a server, and a tunnel through its port for CONNECT. What names another host is 421 in the
// latter.
//
// Users who show certificates are in certificates_test.go. Between listproxy and the API server is
// a [wiretap], which sees headers that neither the answers nor the audit log would show.
//
// # Crowding out
//
// TestCrowding (Linux only: it needs all of 127.0.0.0/8, and /proc) has a control plane of its own,
// and callers who ask for more than their share: made-up tokens, connections, bodies that do not
// come, answers that nobody reads, long headers, long chains of certificates. Beside each of them
// another caller does its work, from another address. All that it asks for must come, and its lists
// from memory. That holds on any machine: nothing depends on how fast something is. make test-all
// has those that only many callers at the same time can show (the field always of crowding); unit
// tests, test/e2e/forwarding and test/faults/limits hold the rest.
//
//	make attacks
//
// makes all of them, for longer, and with more of each; then does it to kube-apiserver itself; and
// prints for both how long the other caller's lists took, how many came from memory and how many
// failed, what CPU time and memory the attack cost, and how often kube-apiserver had to
// authenticate and to review. An attack is an entry of crowdings.
//
// Attacks on watches from memory are entries of watchCrowdings. Beside these the other caller also
// follows a pod that changes all the time, and begins more watches: all must come from memory, with
// every event. What an attack took (goroutines, descriptors) must come back.
package attacks
