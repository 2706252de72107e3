package watches

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/websocket"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/oracle"
)

// TestWebSocket: a watch that asks for a WebSocket has one, with each event in a message.
func TestWebSocket(t *testing.T) {
	c := comparator(differential.SideOf(shared.Healthy), NewReport(), Options{})
	before, err := c.now(t.Context())
	expect.NoError(t, err)
	r := shared.Resources[1] // config maps
	const n = 3
	for i := range n {
		name := "told-over-a-websocket-" + strconv.Itoa(i)
		if _, err := shared.Create(t.Context(), r, "team-a", name, map[string]any{"data": map[string]any{"n": name}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shared.Remove(t.Context(), r, "team-a", name) })
	}
	target := r.Path("team-a") + "?watch=true&resourceVersion=" + strconv.FormatUint(before, 10)
	said := map[string][]oracle.Event{}
	for _, side := range []struct {
		name, url string
		ca        []byte
	}{{"kube-apiserver", shared.Plane.URL(), shared.Plane.CA()}, {"listproxy", shared.Healthy.URL(), shared.Healthy.CA()}} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(side.ca)
		config, err := websocket.NewConfig(strings.Replace(side.url, "https", "wss", 1)+target, side.url)
		expect.NoError(t, err)
		config.TlsConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		config.Header = http.Header{"Authorization": {"Bearer " + shared.Users()[0].Token}}
		conn, err := config.DialContext(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", side.name, err)
		}
		for len(said[side.name]) < n {
			var message []byte
			if err := websocket.Message.Receive(conn, &message); err != nil {
				t.Fatalf("%s: %v", side.name, err)
			}
			e, err := next(events.NewReader(bytes.NewReader(message), ask.JSON))
			if err != nil {
				t.Fatalf("%s: %v", side.name, err)
			}
			said[side.name] = append(said[side.name], e)
		}
		_ = conn.Close()
	}
	if err := oracle.SameEvents(said["listproxy"], said["kube-apiserver"]); err != nil {
		t.Error(err)
	}
}
