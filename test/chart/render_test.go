package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/listproxy/listproxy/test/expect"
)

// rendering is the rendered chart. Its text has the manifests, those of helm test last, and the notes as comments.
type rendering struct {
	text    string
	objects []runtime.Object
}

// generated matches the certificates and keys that the chart generates. They differ each time it is rendered.
var generated = regexp.MustCompile(`(?m)^(  (?:ca\.crt|ca\.key|tls\.crt|tls\.key)): \S+$`)

// lineNumbers matches the line numbers in a diff. Golden files have none: one new line in a template would change most of them.
var lineNumbers = regexp.MustCompile(`(?m)^@@ .* @@$`)

// render renders the chart with the values of a file, without a cluster.
func render(t *testing.T, file string, flags ...string) rendering {
	t.Helper()
	var release struct {
		Manifest string
		Hooks    []struct{ Path, Manifest string }
		Info     struct{ Notes string }
	}
	args := []string{"install", "listproxy", chart, "--namespace", "proxies", "--dry-run=client", "--output", "json", "-f", file}
	expect.NoError(t, json.Unmarshal([]byte(mustHelm(t, append(args, flags...)...)), &release))
	manifests := strings.TrimSpace(release.Manifest) + "\n"
	for _, hook := range release.Hooks {
		manifests += fmt.Sprintf("---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	notes := "---\n# Notes:\n"
	for line := range strings.Lines(strings.TrimSpace(release.Info.Notes) + "\n") {
		notes += strings.TrimSpace("# "+line) + "\n"
	}
	return rendering{text: generated.ReplaceAllString(manifests+notes, "$1: MADE"), objects: objects(t, manifests)}
}

// unknownKinds are kinds of other projects, which the scheme cannot decode.
var unknownKinds = map[string]bool{"Certificate": true, "ServiceMonitor": true, "PrometheusRule": true}

// objects decodes manifests strictly: an unknown or repeated field fails the test.
func objects(t *testing.T, manifests string) []runtime.Object {
	t.Helper()
	options := serializer.SerializerOptions{Yaml: true, Strict: true}
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, options)
	var all []runtime.Object
	for document := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var named struct{ Kind string }
		expect.NoError(t, yaml.Unmarshal([]byte(document), &named))
		if named.Kind == "" || unknownKinds[named.Kind] { // no kind: comments only
			continue
		}
		object, _, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		all = append(all, object)
	}
	return all
}

// ofType returns the objects of a type.
func ofType[T runtime.Object](all []runtime.Object) (found []T) {
	for _, object := range all {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// one returns the only object of a type.
func one[T runtime.Object](t *testing.T, all []runtime.Object) T {
	t.Helper()
	found := ofType[T](all)
	if len(found) != 1 {
		t.Fatalf("got %d objects of type %T, want one", len(found), *new(T))
	}
	return found[0]
}

// compareGolden checks that a golden file has the text. With -update it writes the file.
func compareGolden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path) // #nosec G304 -- of this package
	expect.NoError(t, err)
	expect.Same(t, string(want), text)
}

// TestGolden: the rendered chart is as in the golden files, and keeps the invariants. testdata/defaults.golden.yaml is rendered
// from the chart's own values. testdata/variants.golden.diff has, for each case in testdata/variants.yaml, the difference to
// its group's base.
func TestGolden(t *testing.T) {
	t.Parallel()
	defaults := render(t, writeValues(t, "{}"))
	defaults.checkInvariants(t)
	compareGolden(t, "testdata/defaults.golden.yaml", defaults.text)

	variants, err := os.ReadFile("testdata/variants.yaml")
	expect.NoError(t, err)
	var groups []struct {
		Base   json.RawMessage            // the values of the group's base
		Change map[string]json.RawMessage // by case, the values that are added
	}
	expect.NoError(t, yaml.UnmarshalStrict(variants, &groups))
	var changes strings.Builder
	for _, group := range groups {
		base := writeValues(t, string(group.Base))
		before := difflib.SplitLines(render(t, base).text)
		for _, name := range slices.Sorted(maps.Keys(group.Change)) {
			r := render(t, base, "-f", writeValues(t, string(group.Change[name])))
			t.Run(name, r.checkInvariants)
			diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: before, B: difflib.SplitLines(r.text)})
			expect.NoError(t, err)
			fmt.Fprintf(&changes, "\n# %s\n%s", name, lineNumbers.ReplaceAllString(diff, "@@"))
		}
	}
	compareGolden(t, "testdata/variants.golden.diff", changes.String())
}

// TestLint: helm lint finds nothing in the chart.
func TestLint(t *testing.T) {
	t.Parallel()
	mustHelm(t, "lint", "--strict", "--kube-version", "1.36.0", chart)
}
