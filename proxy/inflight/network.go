package inflight

import (
	"crypto/sha256"
	"net/netip"
)

// networkBits is how much of an IPv6 address tells one network from another: whoever has one
// address has all the addresses in it (RFC 4291, 2.5.4).
const networkBits = 64

// Network is what connections, and callers who are not accepted, are counted by: an address of
// IPv4, or a network of IPv6. What is no address of TCP is the zero network.
type Network struct{ netip.Addr }

// NetworkOf returns the network of an address with a port.
func NetworkOf(remoteAddr string) Network {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return Network{}
	}
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, networkBits).Masked().Addr()
	}
	return Network{address}
}

// ShareKey is by whom what is in flight is shared.
type ShareKey [sha256.Size]byte
