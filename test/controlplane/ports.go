package controlplane

import (
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

// Reserved ports are below the ranges that Linux (from 32768) and macOS (from 49152) give to outgoing connections, so that the
// port of a server that is down stays free.
const (
	firstPort = 20000
	portCount = 10000
)

// A port is a TCP port of loopback that is reserved until release, or until this process ends.
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
	start := rand.IntN(portCount) // #nosec G404 -- only to try different ports first
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
	return nil, fmt.Errorf("no free port on 127.0.0.1 between %d and %d", firstPort, firstPort+portCount-1)
}

// FreePort reserves a port of loopback until the test ends, for a server that may be down in between.
func FreePort(t testing.TB) int {
	t.Helper()
	p, err := reservePort()
	expect.NoError(t, err)
	t.Cleanup(p.release)
	return p.number
}

func (p *port) release() { p.lock.Unlock() }

// address returns the host and port at which a server on the port listens.
func (p *port) address() string { return loopback(p.number) }

func loopback(number int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(number)) }
