package forwarding

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestTokensOfTheQuiet: of a resource that has not changed since etcd was compacted, kube-apiserver
// reads the pages of an exact revision from etcd. The tokens of these lack the slash that listproxy's
// have, and each goes on with the other's.
func TestTokensOfTheQuiet(t *testing.T) {
	harness.Long(t)
	quiet := harness.RunControlPlane(t, controlplane.Options{})
	const maps = "/api/v1/namespaces/" + controlplane.TeamA + "/configmaps"
	admin := quiet.RESTConfig(controlplane.Admin)
	server := ask.MustNew(t, admin, patience)
	for i := range 5 {
		object := map[string]any{"metadata": map[string]any{"name": fmt.Sprint("map-", i)}}
		if _, err := server.Do(t.Context(), http.MethodPost, maps, object); err != nil {
			t.Fatal(err)
		}
	}
	p := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: quiet.RESTConfig(controlplane.Feed), Args: []string{"--eager", "configmaps", "--consistent-lists=always"},
	})
	proxy := ask.MustNew(t, p.RESTConfig(admin), patience)
	elsewhere := func(name string) ask.Answer {
		written, err := server.Do(t.Context(), http.MethodPost, "/api/v1/namespaces", kinds.Namespace(name))
		expect.NoError(t, err)
		return written
	}
	elsewhere("before") // so that what is compacted is newer than the last of the resource
	expect.NoError(t, quiet.CompactEtcd(t.Context()))
	// A revision that is above the compacted one, and of which the resource knows nothing.
	written := elsewhere("behind")
	page := fmt.Sprintf("%s?limit=2&resourceVersionMatch=Exact&resourceVersion=%s", maps, written.Meta().ResourceVersion)
	read := func(c *ask.Client, target string) ask.Answer {
		answer, err := c.Get(t.Context(), target)
		if err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%s: %s, %v", target, answer, err)
		}
		return answer
	}
	// kube-apiserver looks now and then how far etcd was compacted.
	var slow ask.Answer
	poll.Until(t, patience, "a token without the slash", func() bool {
		slow = read(server, page)
		return !slashed(t, slow)
	})
	var fast ask.Answer
	poll.Until(t, patience, "a page from memory", func() bool {
		fast = read(proxy, page)
		return fast.FromMemory()
	})
	if !slashed(t, fast) {
		t.Error("listproxy's token has no slash")
	}
	theirs, ours := slow.Meta().Continue, fast.Meta().Continue
	if !body.SameToken(theirs, ours) || strings.ReplaceAll(string(slow.Body), theirs, ours) != string(fast.Body) {
		t.Errorf("the pages differ in more than the slash:\n%s\n%s", slow, fast)
	}
	// The same goes for the next page.
	want := namesOn(t, read(server, maps+"?limit=2&continue="+theirs))
	for _, next := range []struct {
		name, token string
		of          *ask.Client
		slash       bool
	}{
		{"kube-apiserver's token at kube-apiserver", theirs, server, false},
		{"listproxy's at kube-apiserver", ours, server, false},
		{"listproxy's at listproxy", ours, proxy, true},
		{"kube-apiserver's at listproxy", theirs, proxy, true},
	} {
		answer := read(next.of, maps+"?limit=2&continue="+next.token)
		if got := namesOn(t, answer); got != want {
			t.Errorf("%s: %s, not %s", next.name, got, want)
		}
		if got := slashed(t, answer); got != next.slash {
			t.Errorf("%s: a token with a slash: %t", next.name, got)
		}
	}
}

// slashed reports whether the token of a page begins its place with a slash.
func slashed(t *testing.T, page ask.Answer) bool {
	t.Helper()
	token, err := body.DecodeToken(page.Meta().Continue)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	return strings.HasPrefix(token.Start, "/")
}

func namesOn(t *testing.T, page ask.Answer) string {
	t.Helper()
	var list struct{ Items []struct{ Metadata ask.Meta } }
	expect.NoError(t, json.Unmarshal(page.Body, &list))
	var all []string
	for _, item := range list.Items {
		all = append(all, item.Metadata.Name)
	}
	return strings.Join(all, " ")
}
