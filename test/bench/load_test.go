package bench

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/workload"
)

// BenchmarkLoad measures what the streaming list by which a feed loads pods costs kube-apiserver
// and the network, with gzip and without. Only 1.37 and later compress it:
// LISTPROXY_TEST_KUBERNETES=1.37.2.
func BenchmarkLoad(b *testing.B) {
	const n = 3000
	cp := harness.RunControlPlane(b, controlplane.Options{})
	expect.NoError(b, workload.Fill(b.Context(), cp, workload.Pods{Nodes: 100}, n, func(int) {}))
	pid, err := cp.APIServerPID()
	expect.NoError(b, err)
	idle := idleLoad(b, pid)
	feed := ask.MustNew(b, cp.RESTConfig(controlplane.Feed), 0)
	for name, accept := range map[string]string{"JSON": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(name+"/"+encoding, func(b *testing.B) {
				client := feed.With("Accept", accept).With("Accept-Encoding", encoding)
				compressed := encoding == "gzip"
				if _, err := load(b, client, compressed); errors.Is(err, errEncoding) && compressed {
					b.Skip("kube-apiserver " + cp.Version() + " compresses no streaming list")
				}
				costs(b, pid, idle, 2, 1, func() (int, error) { return load(b, client, compressed) })
			})
		}
	}
}

var errEncoding = errors.New("the answer has another Content-Encoding")

// load opens a streaming list of pods and reads it to the bookmark at its end. The size is that on
// the wire.
func load(b *testing.B, c *ask.Client, compressed bool) (size int, err error) {
	b.Helper()
	resp, err := c.Open(b.Context(), http.MethodGet, "/api/v1/pods?"+ask.StreamingList, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if is := resp.Header.Get("Content-Encoding") == "gzip"; is != compressed {
		return 0, errEncoding
	}
	wire := &counting{from: resp.Body}
	plain := io.Reader(wire)
	if compressed {
		plain = events.Unzip(wire)
	}
	err = events.SkipInitial(plain)
	return wire.bytes, err
}

// counting counts what is read.
type counting struct {
	from  io.Reader
	bytes int
}

// Read implements io.Reader.
func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes += n
	return n, err
}
