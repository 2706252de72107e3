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

// httpsPort is the port of a host without one: API servers speak HTTPS.
const httpsPort = 443

// A Target is a host and a port that a client can ask for in a CONNECT. The host is a DNS name in
// lower case, or an address as netip.Addr writes it, so that equal targets compare equal.
type Target struct {
	Host string
	Port uint16
}

// String writes the target as a CONNECT request does, with brackets around IPv6 addresses.
func (t Target) String() string {
	return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
}

// errNoTarget says what a target must look like. Callers add the text that is not one.
var errNoTarget = errors.New("not a host:port with a DNS name, an IPv4 address or an IPv6 address in brackets")

// parseConnectTarget reads the target of a CONNECT request (RFC 9110, 9.3.6): exactly host:port.
// The case of letters and the notation of IPv6 addresses do not matter. Names with a trailing dot,
// addresses with zones, a user before the host, and ports with a sign or leading zeros are refused.
// Forms that some resolvers read as an IPv4 address (octal, hexadecimal, one number) are names
// here.
func parseConnectTarget(s string) (Target, error) {
	host, port, err := splitTarget(s)
	if err != nil || port == "" {
		return Target{}, errNoTarget
	}
	return newTarget(host, port)
}

// parseTarget is [parseConnectTarget] for the Host of a request (RFC 9112, 3.2) and for flags,
// where a missing port means 443.
func parseTarget(s string) (Target, error) {
	host, port, err := splitTarget(s)
	if err != nil {
		return Target{}, err
	}
	return newTarget(host, cmp.Or(port, strconv.Itoa(httpsPort)))
}

// splitTarget splits host:port. The port is empty if there is no colon. An IPv6 address keeps its
// brackets.
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

// NewTargets returns the target of upstream, the API server's URL, and those of more, each a host
// or a host:port. A missing port means 443.
func NewTargets(upstream *url.URL, more []string) (Targets, error) {
	first, err := parseTarget(upstream.Host)
	if err != nil {
		return Targets{}, fmt.Errorf("the API server's address %q: %w", upstream.Host, err)
	}
	list := []Target{first}
	for _, s := range more {
		if address, err := netip.ParseAddr(s); err == nil && address.Is6() {
			s = "[" + s + "]" // a flag may have an IPv6 address without brackets
		}
		t, err := parseTarget(s)
		if err != nil {
			return Targets{}, fmt.Errorf("%q: %w", s, err)
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return Targets{list}, nil
}

// allowConnect reports whether the target of a CONNECT request is the API server.
func (ts Targets) allowConnect(target string) bool {
	t, err := parseConnectTarget(target)
	return err == nil && slices.Contains(ts.list, t)
}

// AllowHost reports whether the Host of a request in a tunnel is the API server.
func (ts Targets) AllowHost(host string) bool {
	t, err := parseTarget(host)
	return err == nil && slices.Contains(ts.list, t)
}

// Hosts returns the DNS names and addresses, each once, for a certificate that covers them.
func (ts Targets) Hosts() []string {
	var hosts []string
	for _, t := range ts.list {
		if !slices.Contains(hosts, t.Host) {
			hosts = append(hosts, t.Host)
		}
	}
	return hosts
}

// String lists the targets for people. The one of the API server's URL is first.
func (ts Targets) String() string {
	words := make([]string, len(ts.list))
	for i, t := range ts.list {
		words[i] = t.String()
	}
	return strings.Join(words, ", ")
}
