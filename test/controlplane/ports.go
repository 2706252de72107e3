package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/filelock"
	"github.com/listproxy/listproxy/test/expect"
)

// Ports come from a range below those that Linux (from 32768) and macOS (from 49152) give to
// outgoing connections: a port that is free while its server is down stays free.
const (
	firstPort = 20000
	portCount = 10000
)

// A port is a TCP port of loopback that is reserved against every other control plane of this
// user until release, or until the process ends.
type port struct {
	number int
	lock   *filelock.Lock
}

// reservePort finds a port that nobody listens on and nobody has reserved.
func reservePort() (*port, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("listproxy-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for port reservations: %w", err)
	}
	start := rand.IntN(portCount) // #nosec G404 -- only spreads the tries
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		lock, ok, err := filelock.Try(filepath.Join(dir, strconv.Itoa(number)))
		if err != nil {
			return nil, fmt.Errorf("reserve a port: %w", err)
		}
		if !ok {
			continue
		}
		if listener, err := net.Listen("tcp", loopback(number)); err == nil {
			_ = listener.Close()
			return &port{number: number, lock: lock}, nil
		}
		lock.Unlock()
	}
	return nil, errors.New("no free port on 127.0.0.1 between " + strconv.Itoa(firstPort) +
		" and " + strconv.Itoa(firstPort+portCount-1))
}

// FreePort is a port of loopback for a server of a test: nobody takes it before the test ends, also while
// the server is down.
func FreePort(t testing.TB) int {
	t.Helper()
	p, err := reservePort()
	expect.NoError(t, err)
	t.Cleanup(p.release)
	return p.number
}

func (p *port) release() { p.lock.Unlock() }

// address is where a server on the port listens: host and port.
func (p *port) address() string { return loopback(p.number) }

func loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
