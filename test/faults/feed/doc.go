// Package feed tests the rules by which a feed knows its state. A hop between a real kube-apiserver
// and listproxy, a process of its own, breaks each rule on purpose.
//
//	test ──────────► listproxy ──► hop ──► kube-apiserver
//	  └── the same list, asked directly ───────────┘
//
// Every list that a test gets from listproxy with status 200, from memory or forwarded, is compared
// byte for byte with kube-apiserver's list at the same revision. A test adds the situation in which
// it asks, and what Cache-Status must say there.
//
// Tests wait for conditions; deadlines only end what does not come. A test that something does not
// happen has to look for some time: TestSelfCheck for as long as -feed.selfcheck says.
//
// What a feed makes of a slow, lying or restored upstream is held by the model in cmd/listproxy and
// by the tests of package snapshot; here is what only a real kube-apiserver shows.
package feed
