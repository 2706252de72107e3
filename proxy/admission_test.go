package proxy

import "testing"

// TestShareKey: a share is a known caller's, or else that of an address.
func TestShareKey(t *testing.T) {
	identifier := newIdentifier(t)
	alice, bob := identify(identifier, "Bearer a"), identify(identifier, "Bearer b")
	type peer struct {
		id       Identity
		accepted bool
		address  string
	}
	for _, test := range []struct {
		name   string
		a, b   peer
		shared bool
	}{
		{"a known caller everywhere", peer{alice, true, "192.0.2.1:1"}, peer{alice, true, "192.0.2.2:1"}, true},
		{"two known callers", peer{alice, true, "192.0.2.1:1"}, peer{bob, true, "192.0.2.1:1"}, false},
		{"a known one and a stranger", peer{alice, true, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:1"}, false},
		{"strangers of one address", peer{alice, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"nobody of one address", peer{Identity{}, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"two addresses", peer{alice, false, "192.0.2.1:1"}, peer{alice, false, "192.0.2.2:1"}, false},
		{"one network of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{bob, false, "[2001:db8::ffff:0:0:1]:1"}, true},
		{"two networks of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{alice, false, "[2001:db8:0:1::1]:1"}, false},
		{"zones", peer{alice, false, "[fe80::1%eth0]:1"}, peer{alice, false, "[fe80::1%eth1]:1"}, true},
		{"IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "192.0.2.1:1"}, true},
		{"two of IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "[::ffff:192.0.2.2]:1"}, false},
	} {
		a := shareKey(test.a.id, test.a.accepted, test.a.address)
		b := shareKey(test.b.id, test.b.accepted, test.b.address)
		if (a == b) != test.shared {
			t.Errorf("%s: shared %t, want %t", test.name, a == b, test.shared)
		}
	}
}
