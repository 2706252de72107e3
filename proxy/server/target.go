package server

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/listproxy/listproxy/proxy/certs"
)

// httpsPort is what a host without a port means: every name of an API server is one of HTTPS.
const httpsPort = 443

// A Target is a host and a port that a client can ask to be connected to, in one form: a DNS name
// in lower case, an address as netip.Addr writes it. It is comparable.
type Target struct {
	Host string
	Port uint16
}

// String writes the target as a CONNECT request does, with brackets around IPv6 addresses.
func (t Target) String() string {
	return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

// errNoTarget says only what a target looks like: what it was taken for is the caller's to say.
var errNoTarget = errors.New("not a host:port with a DNS name, an IPv4 address or an IPv6 address in brackets")

// ParseConnectTarget reads the target of a CONNECT request (RFC 9110, 9.3.6): host:port, nothing
// else and nothing missing. Letters of names may be of either case, IPv6 addresses written in any
// form. What some resolvers take for the same host is another one here, or none: names with a
// trailing dot, addresses with zones, with zeros before a number, in octal or as one number;
// a user before the host, and ports with a sign or zeros in front, are refused.
func ParseConnectTarget(s string) (Target, error) {
	host, port, err := splitTarget(s)
	if err != nil || port == "" {
		return Target{}, errNoTarget
	}
	return newTarget(host, port)
}

// ParseTarget is [ParseConnectTarget] for where the port may be left out, which then is 443: the
// Host of a request (RFC 9112, 3.2) and flags.
func ParseTarget(s string) (Target, error) {
	host, port, err := splitTarget(s)
	if err != nil {
		return Target{}, err
	}
	return newTarget(host, cmp.Or(port, strconv.Itoa(httpsPort)))
}

// splitTarget takes host:port apart; the port is empty if there is no colon. An IPv6 address
// keeps its brackets.
func splitTarget(s string) (host, port string, err error) {
	colon := strings.LastIndexByte(s, ':')
	if colon < strings.LastIndexByte(s, ']') {
		colon = -1
	}
	if colon < 0 {
		return s, "", nil
	}
	if colon == len(s)-1 {
		return "", "", errNoTarget
	}
	return s[:colon], s[colon+1:], nil
}

func newTarget(host, port string) (Target, error) {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || port != strconv.FormatUint(number, 10) {
		return Target{}, errNoTarget
	}
	t := Target{Port: uint16(number)}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		address, err := netip.ParseAddr(inner)
		if err != nil || !closed || !address.Is6() || address.Zone() != "" {
			return Target{}, errNoTarget
		}
		t.Host = address.String()
		return t, nil
	}
	if address, err := netip.ParseAddr(host); err == nil && address.Is4() {
		t.Host = address.String()
		return t, nil
	}
	if !certs.ValidName(host) {
		return Target{}, errNoTarget
	}
	t.Host = strings.ToLower(host)
	return t, nil
}

// Targets are the names under which clients know the one API server. It is immutable.
type Targets struct{ list []Target }

// NewTargets returns the targets that upstream, the API server's URL, and more stand for: a host,
// or a host:port, with 443 where there is none.
func NewTargets(upstream *url.URL, more []string) (Targets, error) {
	first, err := ParseTarget(upstream.Host)
	if err != nil {
		return Targets{}, fmt.Errorf("the API server's address %q: %w", upstream.Host, err)
	}
	list := []Target{first}
	for _, s := range more {
		if address, err := netip.ParseAddr(s); err == nil && address.Is6() {
			s = "[" + s + "]" // nobody writes brackets where there is no port
		}
		t, err := ParseTarget(s)
		if err != nil {
			return Targets{}, fmt.Errorf("%q: %w", s, err)
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return Targets{list}, nil
}

// AllowConnect says whether the target of a CONNECT request is the API server.
func (ts Targets) AllowConnect(target string) bool {
	t, err := ParseConnectTarget(target)
	return err == nil && slices.Contains(ts.list, t)
}

// AllowHost says whether the Host of a request in a tunnel is the API server.
func (ts Targets) AllowHost(host string) bool {
	t, err := ParseTarget(host)
	return err == nil && slices.Contains(ts.list, t)
}

// Hosts are the DNS names and addresses, each once: what a certificate for them has to cover.
func (ts Targets) Hosts() []string {
	var hosts []string
	for _, t := range ts.list {
		if !slices.Contains(hosts, t.Host) {
			hosts = append(hosts, t.Host)
		}
	}
	return hosts
}

// String lists the targets for people, the API server's own first.
func (ts Targets) String() string {
	words := make([]string, len(ts.list))
	for i, t := range ts.list {
		words[i] = t.String()
	}
	return strings.Join(words, ", ")
}
