package serve

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

func mustTargets(t testing.TB, upstream string, more ...string) Targets {
	t.Helper()
	u, err := url.Parse(upstream)
	expect.NoError(t, err)
	targets, err := NewTargets(u, more)
	expect.NoError(t, err)
	return targets
}

// TestParseTarget: a host and port are read in one spelling, and what could be read in two ways is refused.
func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"api.example:6443":      "api.example:6443",
		"API.Example:6443":      "api.example:6443",
		"10.0.0.1:443":          "10.0.0.1:443",
		"[::1]:443":             "[::1]:443",
		"[0:0:0:0:0:0:0:1]:443": "[::1]:443",
		"[FD00::A]:443":         "[fd00::a]:443",
		"[::ffff:10.0.0.1]:443": "[::ffff:10.0.0.1]:443", // not 10.0.0.1
		"0xa.0.0.1:443":         "0xa.0.0.1:443",         // a name, as good as any other
		"012.0.0.1:443":         "012.0.0.1:443",
		"167772161:443":         "167772161:443",
	} {
		expect.Same(t, [2]string{want, want}, targetAndHost(in))
	}
	for _, host := range []string{"api.example", "10.0.0.1", "[::1]"} {
		expect.Same(t, [2]string{"", host + ":443"}, targetAndHost(host))
	}
	for _, in := range []string{
		"", ":443", "api.example:", "api.example.:443", ".api.example:443", "api..example:443",
		"api.example:0443", "api.example:+443", "api.example:-1", "api.example:0", "api.example:65536", "api.example:https",
		"api.example:443:443", "api.example :443", "api.example:443 ", "api.example:443/", "api.example:443?x", "api.example:443#x",
		"api.example:443@evil.example:443", "user@api.example:443", "user:password@api.example:443",
		"https://api.example:443", "//api.example:443", "/api", "*", "api%2eexample:443", "api.example%00:443",
		"api\u3002example:443", "ａｐｉ.example:443", "\u212a.example:443", // the sign for kelvin, a k in lower case
		"::1", "::1:443", "[::1", "::1]:443", "[::1]443", "[[::1]]:443", "[10.0.0.1]:443", "[api.example]:443",
		"[fe80::1%eth0]:443", "[fe80::1%25eth0]:443", strings.Repeat("a", 254) + ":443",
	} {
		if got := targetAndHost(in); got != [2]string{} {
			t.Errorf("%q is taken for %q", in, got)
		}
	}
}

// targetAndHost is what is read of a text in a CONNECT, and as a Host.
func targetAndHost(text string) (read [2]string) {
	read[0], _ = parseTarget(text)
	read[1], _ = parseTargetOrHost(text)
	return read
}

// TestTargets: a CONNECT may name the upstream and what else is given, at those ports and no other.
func TestTargets(t *testing.T) {
	targets := mustTargets(t, "https://API.example:6443/prefix", "kubernetes.default.svc", "api.example", "fd00::a", "10.0.0.1:6443", "KUBERNETES.default.svc:443")
	expect.Same(t, "api.example:6443, kubernetes.default.svc:443, api.example:443, [fd00::a]:443, 10.0.0.1:6443", targets.String())
	expect.Same(t, []string{"api.example", "kubernetes.default.svc", "fd00::a", "10.0.0.1"}, targets.Hosts())
	for target, allowed := range map[string]bool{
		"api.example:6443":     true,
		"api.example:443":      true,
		"api.example":          false, // a CONNECT has a port
		"api.example:8443":     false,
		"10.0.0.1:443":         false, // given with port 6443
		"10.0.0.1:6443":        true,
		"[fd00:0::a]:443":      true,
		"evil.example:443":     false,
		"api.example.evil:443": false,
		"":                     false,
	} {
		if got := targets.contains(target); got != allowed {
			t.Errorf("CONNECT %q allowed: %t, want %t", target, got, allowed)
		}
	}
	expect.Same(t, "api.example:443", mustTargets(t, "https://api.example").String())
	if targets := (Targets{}); targets.contains("") || targets.contains(":0") {
		t.Error("no targets allow something")
	}
}

// FuzzConnectTarget: what is allowed is one of the targets in every reading that the standard
// library has of it, and one form stands for itself.
func FuzzConnectTarget(f *testing.F) {
	for _, seed := range []string{
		"api.example:6443", "API.EXAMPLE:6443", "[fd00::a]:443", "[FD00:0:0::A]:443", "10.0.0.1:443", "10.0.0.1:443@evil",
		"api.example.:6443", "api.example:06443", "0x0a.0.0.1:443", "[::ffff:10.0.0.1]:443", "[fd00::a%1]:443", "a:b@api.example:6443", "//api.example:6443",
	} {
		f.Add(seed)
	}
	targets := mustTargets(f, "https://api.example:6443", "fd00::a", "10.0.0.1")
	f.Fuzz(func(t *testing.T, s string) {
		target, err := parseTarget(s)
		if err != nil {
			if targets.contains(s) {
				t.Fatalf("%q cannot be read and is allowed", s)
			}
			return
		}
		again, err := parseTarget(target)
		if err != nil || again != target {
			t.Fatalf("%q is %v, which is %v (%v)", s, target, again, err)
		}
		if host, err := parseTargetOrHost(s); err != nil || host != target {
			t.Fatalf("%q is %v in a CONNECT and %v as a Host", s, target, host)
		}
		if !targets.contains(s) {
			return
		}
		u, err := url.Parse("https://" + s)
		if err != nil || u.User != nil || u.Path != "" || u.Host != s {
			t.Fatalf("%q is allowed and net/url reads %+v (%v)", s, u, err)
		}
		name := strings.ToLower(u.Hostname())
		if address, err := netip.ParseAddr(name); err == nil {
			name = address.String()
		}
		if net.JoinHostPort(name, u.Port()) != target || u.Port() != map[string]string{"api.example": "6443", "fd00::a": "443", "10.0.0.1": "443"}[name] {
			t.Fatalf("%q is allowed as %v and net/url reads %q, %q", s, target, name, u.Port())
		}
	})
}
