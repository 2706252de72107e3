package feed

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fwdNotCached = "listproxy; fwd=bypass; detail=not-cached"

// What the policy file says is done: what is kept, and what a limit means; and what --eager says, in
// which forms.
func TestPolicyFile(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(config, []byte(`apiVersion: listproxy.io/v1alpha1
kind: Policy
resources:
- {group: "", resource: podtemplates, limitAtZero: honour}
- {group: "", resource: limitranges, cache: never}
- {group: "", resource: secrets, cache: onDemand}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, shared, rigOptions{args: []string{"--config", config, "--eager", "podtemplates,podtemplates/protobuf"}})
	ns := r.namespace(t, "policy")
	for _, name := range []string{"a", "b", "c"} {
		r.create(t, podTemplates, ns, name)
	}
	last := r.create(t, limitRanges, ns, "a")

	// Both forms were there before any request.
	ready, text := r.proxy.Ready(t.Context())
	for _, check := range []string{"[+]collection/podtemplates.v1 ok", "[+]collection/podtemplates.v1/protobuf ok"} {
		if !ready || !strings.Contains(text, check) {
			t.Errorf("/readyz (%t) does not say %q: %s", ready, check, text)
		}
	}
	r.expect(fwdNotCached, limitRanges.Path(ns), anyVersion())
	if n := r.count(limitRanges, func(url.Values) bool { return true }); n != 0 {
		t.Errorf("%d requests for what is not kept", n)
	}
	r.await(hitAny, "/api/v1/secrets", anyVersion())

	// A page at any revision is the page at its revision, and the walk goes on there.
	r.await(hitNotOlderThan, podTemplates.Path(ns), notOlderThan(last))
	page, err := r.admin.Get(t.Context(), podTemplates.Path(ns)+"?resourceVersion=0&limit=2")
	if err != nil || page.Source() != hitAny {
		t.Fatalf("a page at any revision: %s, %v", page, err)
	}
	if page.Meta().Continue == "" {
		t.Fatalf("the limit is ignored: %s", page)
	}
	if err := r.verify(t.Context(), podTemplates.Path(ns), firstPage(page.Meta().ResourceVersion), page); err != nil {
		t.Error(err)
	}
	r.expect(hitContinue, podTemplates.Path(ns), query("limit=2", "continue="+page.Meta().Continue))
	// Elsewhere it is.
	r.await(hitAny, configMaps.Path(""), query("resourceVersion=0"))
	all := r.expect(hitAny, configMaps.Path(""), anyVersion())
	whole, err := r.admin.Get(t.Context(), configMaps.Path("")+"?resourceVersion=0&limit=1")
	if err != nil || whole.Source() != hitAny || whole.Meta().Continue != "" {
		t.Errorf("a limit at any revision: %s, %v (without it: %s)", whole, err, all)
	}
}
