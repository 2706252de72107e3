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

// Targets has the names under which clients know the one API server, as host:port in the form of [parseTarget]. It is
// immutable.
type Targets struct{ list []string }

// NewTargets returns the target in upstream, the API server's URL, and the targets in more, which has hosts with or without
// a port.
func NewTargets(upstream *url.URL, more []string) (Targets, error) {
	first, err := parseTargetOrHost(upstream.Host)
	if err != nil {
		return Targets{}, fmt.Errorf("the API server's address %q: %w", upstream.Host, err)
	}
	list := []string{first}
	for _, s := range more {
		if address, err := netip.ParseAddr(s); err == nil && address.Is6() {
			s = "[" + s + "]" // users may leave out the brackets of an IPv6 address without a port
		}
		target, err := parseTargetOrHost(s)
		if err != nil {
			return Targets{}, fmt.Errorf("%q: %w", s, err)
		}
		if !slices.Contains(list, target) {
			list = append(list, target)
		}
	}
	return Targets{list: list}, nil
}

// contains reports whether the target of a CONNECT request is the API server.
func (ts Targets) contains(target string) bool {
	t, err := parseTarget(target)
	return err == nil && slices.Contains(ts.list, t)
}

// Hosts returns the DNS names and addresses that a certificate must have, each once.
func (ts Targets) Hosts() []string {
	var hosts []string
	for _, t := range ts.list {
		if host, _, err := net.SplitHostPort(t); err == nil && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// String lists the targets for people, that of the API server's URL first.
func (ts Targets) String() string { return strings.Join(ts.list, ", ") }

// errNotTarget describes the form of a target. Callers add the text that was refused.
var errNotTarget = errors.New("not a host:port with a DNS name, an IPv4 address or an IPv6 address in brackets")

// parseTarget returns the canonical form of host:port (RFC 9110, 9.3.6), with names in lower case and addresses as netip
// writes them:
//
//	API.Example:443                         api.example:443
//	[2001:DB8:0::1]:443                     [2001:db8::1]:443
//	0x7f.1:443                              the same: a name, although some resolvers read it as an IPv4 address
//	api.example.:443   [fe80::1%eth0]:443   refused: a trailing dot, a zone
//	user@api:443   api:0   api:+1   api:01  refused: a user, a port that is 0, has a sign or a leading zero
func parseTarget(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	inBrackets, isIPv6 := strings.HasPrefix(s, "["), strings.Contains(host, ":")
	if err != nil || inBrackets != isIPv6 { // SplitHostPort allows brackets around names and IPv4 addresses, too
		return "", errNotTarget
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || port != strconv.FormatUint(number, 10) {
		return "", errNotTarget
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if address.Zone() != "" {
			return "", errNotTarget
		}
		return net.JoinHostPort(address.String(), port), nil
	}
	if !isValidName(host) {
		return "", errNotTarget
	}
	return net.JoinHostPort(strings.ToLower(host), port), nil
}

// parseTargetOrHost is parseTarget for flags and the host of a URL. If s has no port, the port is 443, as for https.
func parseTargetOrHost(s string) (string, error) {
	if target, err := parseTarget(s); err == nil {
		return target, nil
	}
	return parseTarget(s + ":443")
}
