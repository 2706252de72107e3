package serve

import (
	"net"
	"net/netip"
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

// parsed is the "host:port" that listproxy reads from a text: as the target of a CONNECT, and as a Host header. "" means that
// the text is refused.
type parsed struct{ Target, Host string }

func parse(text string) (p parsed) {
	p.Target, _ = parseTarget(text)
	p.Host, _ = parseTargetOrHost(text)
	return p
}

// TestParseTarget: all spellings of a host and port are read as the same text, whether in a CONNECT or in a Host header. A text
// that could be read in two ways is refused. A CONNECT must have a port; in a Host header, the port is 443 if there is none.
func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"api.example:6443":      "api.example:6443",
		"API.Example:6443":      "api.example:6443",
		"10.0.0.1:443":          "10.0.0.1:443",
		"[::1]:443":             "[::1]:443",
		"[0:0:0:0:0:0:0:1]:443": "[::1]:443",
		"[FD00::A]:443":         "[fd00::a]:443",
		"[::ffff:10.0.0.1]:443": "[::ffff:10.0.0.1]:443", // not 10.0.0.1
		"0xa.0.0.1:443":         "0xa.0.0.1:443",         // a name, not 10.0.0.1
		"012.0.0.1:443":         "012.0.0.1:443",         // a name, not 10.0.0.1
		"167772161:443":         "167772161:443",         // a name, not 10.0.0.1
	} {
		expect.Same(t, parsed{Target: want, Host: want}, parse(in))
	}
	for _, withoutPort := range []string{"api.example", "10.0.0.1", "[::1]"} {
		expect.Same(t, parsed{Target: "", Host: withoutPort + ":443"}, parse(withoutPort))
	}
	for _, refused := range []string{
		// No name, or empty labels.
		"", ":443", "api.example.:443", ".api.example:443", "api..example:443",
		// No port, a bad one, or another text after it.
		"api.example:", "api.example:0443", "api.example:+443", "api.example:-1", "api.example:0", "api.example:65536",
		"api.example:https", "api.example:443:443", "api.example :443", "api.example:443 ", "api.example:443/",
		"api.example:443?x", "api.example:443#x",
		// User information.
		"api.example:443@evil.example:443", "user@api.example:443", "user:password@api.example:443",
		// URLs and paths, percent-encoding.
		"https://api.example:443", "//api.example:443", "/api", "*", "api%2eexample:443", "api.example%00:443",
		// Letters that IDNA folds to ASCII, such as the sign for kelvin, which is a k in lower case.
		"api\u3002example:443", "ａｐｉ.example:443", "\u212a.example:443",
		// IPv6 without brackets or with wrong ones, brackets around something else, zones.
		"::1", "::1:443", "[::1", "::1]:443", "[::1]443", "[[::1]]:443", "[10.0.0.1]:443", "[api.example]:443",
		"[fe80::1%eth0]:443", "[fe80::1%25eth0]:443",
		strings.Repeat("a", 254) + ":443", // longer than a name may be
	} {
		if got := parse(refused); got != (parsed{}) {
			t.Errorf("%q is read as %+v, want it refused", refused, got)
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
		"[fd00:0::a]:443":      true,
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

// FuzzConnectTarget: whatever text a CONNECT names,
//
//   - if parseTarget refuses the text, it is not allowed
//   - parseTarget reads its own result as the same text, and parseTargetOrHost reads every target as parseTarget does
//   - if the text is allowed, net/url and net/netip read it as the same target, which has a host and port of the Targets
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
		target, err := parseTarget(s)
		if err != nil {
			if targets.contains(s) {
				t.Fatalf("%q cannot be read, and is allowed", s)
			}
			return
		}
		again, err := parseTarget(target)
		if err != nil || again != target {
			t.Fatalf("%q is read as %q, which is read as %q (%v), want itself", s, target, again, err)
		}
		if host, err := parseTargetOrHost(s); err != nil || host != target {
			t.Fatalf("%q is read as %q in a CONNECT, and as %q (%v) as a Host", s, target, host, err)
		}
		if !targets.contains(s) {
			return
		}
		u, err := url.Parse("https://" + s)
		if err != nil || u.User != nil || u.Path != "" || u.Host != s {
			t.Fatalf("%q is allowed, and net/url reads %+v (%v), want nothing but a host", s, u, err)
		}
		host := strings.ToLower(u.Hostname())
		if address, err := netip.ParseAddr(host); err == nil {
			host = address.String()
		}
		if got := net.JoinHostPort(host, u.Port()); got != target {
			t.Fatalf("%q is allowed as %q, and net/url reads %q", s, target, got)
		}
		if u.Port() != portsByHost[host] {
			t.Fatalf("%q is allowed at port %s, want %s", s, u.Port(), portsByHost[host])
		}
	})
}
