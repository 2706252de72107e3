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

	"k8s.io/apimachinery/pkg/util/validation"
)

// Targets has the names under which clients know the one API server, as host:port in lower case. It is immutable.
type Targets struct{ list []string }

// NewTargets returns the targets for one API server: the host of upstream, which is the API server's URL, and the hosts in
// more, each with or without a port.
func NewTargets(upstream *url.URL, more []string) (Targets, error) {
	var list []string
	for _, s := range append([]string{upstream.Host}, more...) {
		target, err := parseTarget(s)
		if err != nil {
			return Targets{}, fmt.Errorf("%q: %w", s, err)
		}
		if !slices.Contains(list, target) {
			list = append(list, target)
		}
	}
	return Targets{list: list}, nil
}

// contains reports whether the target of a CONNECT request is the API server. Letters may be in upper case, but an address
// must be written as in the list.
func (ts Targets) contains(target string) bool {
	return slices.Contains(ts.list, strings.ToLower(target))
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

// errNotTarget is parseTarget's error for any text that is not a target. NewTargets adds the text.
var errNotTarget = errors.New("not a host or host:port with a DNS name or an IP address")

// parseTarget reads a host with or without a port, and returns host:port in lower case. Without a port, the port is 443, as for
// https: "API.example" becomes "api.example:443". An IPv6 address with a port must be in brackets.
func parseTarget(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host = strings.Trim(s, "[]")
		port = "443"
	}
	host = strings.ToLower(host)
	number, _ := strconv.ParseUint(port, 10, 16)                   // 0 if port is not a number, and 65535 if it is too large
	isPort := number > 0 && port == strconv.FormatUint(number, 10) // false if port is too large, or has leading zeros
	address, err := netip.ParseAddr(host)
	isAddress := err == nil && address.Zone() == ""
	isHost := isAddress || len(validation.IsDNS1123Subdomain(host)) == 0
	if !isPort || !isHost {
		return "", errNotTarget
	}
	return net.JoinHostPort(host, port), nil
}
