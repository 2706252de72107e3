package serve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// httpsPort is the port of a host without one: API servers speak HTTPS.
const httpsPort = "443"

// errNoTarget says what a target must look like. Callers add the text that was refused.
var errNoTarget = errors.New("not a host:port with a DNS name, an IPv4 address or an IPv6 address in brackets")

// parseTarget reads exactly host:port (RFC 9110, 9.3.6), and writes it in one way: names in lower
// case, addresses as netip does, so that equal targets are equal strings. Names with a trailing dot,
// addresses with zones, a user before the host, and ports with a sign or leading zeros are refused.
// Forms that some resolvers read as an IPv4 address (octal, hexadecimal, one number) are names here.
func parseTarget(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.HasPrefix(s, "[") != strings.Contains(host, ":") { // brackets for IPv6, and for nothing else
		return "", errNoTarget
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 || port != strconv.FormatUint(number, 10) {
		return "", errNoTarget
	}
	switch address, err := netip.ParseAddr(host); {
	case err == nil && address.Zone() == "":
		host = address.String()
	case err == nil || !ValidName(host):
		return "", errNoTarget
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

// parseHost is parseTarget for the Host of a request (RFC 9112, 3.2) and for flags, where a missing
// port means 443.
func parseHost(s string) (string, error) {
	if t, err := parseTarget(s); err == nil {
		return t, nil
	}
	return parseTarget(s + ":" + httpsPort)
}

// Targets are the names under which clients know the one API server. It is immutable.
type Targets struct{ list []string }

// NewTargets returns the target of upstream, the API server's URL, and those of more, each a host
// or a host:port. A missing port means 443.
func NewTargets(upstream *url.URL, more []string) (Targets, error) {
	first, err := parseHost(upstream.Host)
	if err != nil {
		return Targets{}, fmt.Errorf("the API server's address %q: %w", upstream.Host, err)
	}
	list := []string{first}
	for _, s := range more {
		if address, err := netip.ParseAddr(s); err == nil && address.Is6() {
			s = "[" + s + "]" // a flag may have an IPv6 address without brackets
		}
		t, err := parseHost(s)
		if err != nil {
			return Targets{}, fmt.Errorf("%q: %w", s, err)
		}
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return Targets{list: list}, nil
}

// allowConnect reports whether the target of a CONNECT request is the API server.
func (ts Targets) allowConnect(target string) bool {
	t, err := parseTarget(target)
	return err == nil && slices.Contains(ts.list, t)
}

// AllowHost reports whether the Host of a request in a tunnel is the API server.
func (ts Targets) AllowHost(host string) bool {
	t, err := parseHost(host)
	return err == nil && slices.Contains(ts.list, t)
}

// Hosts returns the DNS names and addresses, each once, which a certificate must be for.
func (ts Targets) Hosts() []string {
	var hosts []string
	for _, t := range ts.list {
		if host, _, err := net.SplitHostPort(t); err == nil && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// String lists the targets for people. The one of the API server's URL is first.
func (ts Targets) String() string { return strings.Join(ts.list, ", ") }
