// Package feed holds the tests of the rules by which listproxy knows what it knows: each rule
// is broken on purpose, between a real kube-apiserver and listproxy as a process, by a hop that
// stands in the way of the feed.
//
//	test ──────────► listproxy ──► hop ──► kube-apiserver
//	  └── the same question, asked directly ──────┘
//
// Every list that a test gets from listproxy with status 200, from memory or forwarded, is held
// byte for byte against the list that kube-apiserver gives at the same revision. What a test
// adds is the state in which it asks, and what Cache-Status has to say there.
//
// Tests wait for conditions; deadlines only end what does not come. A test of what must not happen,
// or that counts what happens, has to look for some time: TestMisfit for 10 s,
// TestSchemaChangeHeldBack 60 times with 50 ms between, TestSelfCheck for as long as
// -feed.selfcheck says.
package feed
