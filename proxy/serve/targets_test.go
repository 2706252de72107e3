package serve

import (
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// mustTargets returns the targets for the upstream's URL and further hosts.
func mustTargets(t testing.TB, upstream string, further ...string) Targets {
	t.Helper()
	u, err := url.Parse(upstream)
	expect.NoError(t, err)
	targets, err := NewTargets(u, further)
	expect.NoError(t, err)
	return targets
}

// TestParseTarget: a target of the configuration is a name or an address, perhaps in upper case. Without a port, the port is
// 443. Any other text is refused, so that a wrong flag is noticed at the start.
func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"api.example:6443": "api.example:6443",
		"API.Example:6443": "api.example:6443",
		"api.example":      "api.example:443",
		"10.0.0.1:6443":    "10.0.0.1:6443",
		"10.0.0.1":         "10.0.0.1:443",
		"[FD00::A]:6443":   "[fd00::a]:6443",
		"[::1]":            "[::1]:443",
		"::1":              "[::1]:443",
	} {
		got, err := parseTarget(in)
		expect.NoError(t, err)
		expect.Same(t, want, got)
	}
	for _, refused := range []string{
		"", ":443", "api.example.:443", "api..example:443", "*", "api%2eexample:443", "ａｐｉ.example:443",
		"api.example:", "api.example:+443", "api.example:0", "api.example:0443", "api.example:65536", "api.example:https",
		"api.example:443:443", "api.example:443/", "[fe80::1%eth0]:443",
		"user@api.example:443", "https://api.example:443", "https://api", "//api.example:443", "/api",
		strings.Repeat("a", 254) + ":443", // longer than a name may be
	} {
		if got, err := parseTarget(refused); err == nil {
			t.Errorf("%q is read as %q, want it refused", refused, got)
		}
	}
}

// TestTargets: CONNECT is allowed only to the upstream and to the further targets, each at its own port (443 if none is given).
// String returns all targets, and Hosts their hosts without ports, each host once.
func TestTargets(t *testing.T) {
	targets := mustTargets(t, "https://API.example:6443/prefix",
		"kubernetes.default.svc", "api.example", "fd00::a", "10.0.0.1:6443",
		"KUBERNETES.default.svc:443", // a duplicate
	)
	expect.Same(t, "api.example:6443, kubernetes.default.svc:443, api.example:443, [fd00::a]:443, 10.0.0.1:6443", targets.String())
	expect.Same(t, []string{"api.example", "kubernetes.default.svc", "fd00::a", "10.0.0.1"}, targets.Hosts())
	for target, wantAllowed := range map[string]bool{
		"api.example:6443":     true,
		"api.example:443":      true,
		"api.example":          false, // a CONNECT has a port
		"api.example:8443":     false,
		"10.0.0.1:443":         false, // given with port 6443
		"10.0.0.1:6443":        true,
		"API.example:6443":     true,
		"[FD00::A]:443":        true,
		"[fd00:0::a]:443":      false, // another spelling of the address
		"[10.0.0.1]:6443":      false,
		"api.example.:6443":    false,
		"api.example:06443":    false,
		"evil.example:443":     false,
		"api.example.evil:443": false,
		"":                     false,
	} {
		if got := targets.contains(target); got != wantAllowed {
			t.Errorf("CONNECT %q allowed: %t, want %t", target, got, wantAllowed)
		}
	}
	expect.Same(t, "api.example:443", mustTargets(t, "https://api.example").String())
	var none Targets
	for _, target := range []string{"", ":0"} {
		if none.contains(target) {
			t.Errorf("the zero Targets allow a CONNECT to %q", target)
		}
	}
}

// FuzzConnectTarget: if a text is allowed as the target of a CONNECT, net/url reads it as one of the Targets, and as nothing
// else.
func FuzzConnectTarget(f *testing.F) {
	for _, seed := range []string{
		"api.example:6443", "API.EXAMPLE:6443", "[fd00::a]:443", "[FD00:0:0::A]:443", "10.0.0.1:443", "10.0.0.1:443@evil",
		"api.example.:6443", "api.example:06443", "0x0a.0.0.1:443", "[::ffff:10.0.0.1]:443", "[fd00::a%1]:443", "a:b@api.example:6443",
		"//api.example:6443",
	} {
		f.Add(seed)
	}
	targets := mustTargets(f, "https://api.example:6443", "fd00::a", "10.0.0.1")
	portsByHost := map[string]string{"api.example": "6443", "fd00::a": "443", "10.0.0.1": "443"} // of targets
	f.Fuzz(func(t *testing.T, s string) {
		if !targets.contains(s) {
			return
		}
		u, err := url.Parse("https://" + s)
		if err != nil || u.User != nil || u.Path != "" || u.Host != s {
			t.Fatalf("%q is allowed, and net/url reads %+v (%v), want nothing but a host", s, u, err)
		}
		if host := strings.ToLower(u.Hostname()); u.Port() == "" || u.Port() != portsByHost[host] {
			t.Fatalf("%q is allowed, and net/url reads the host %q and the port %q, want one of %s", s, host, u.Port(), targets)
		}
	})
}
