package binaries

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
)

func TestStale(t *testing.T) {
	bin := t.TempDir()
	write := func(name, content string) {
		expect.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(content), 0o600))
	}
	names := func() []string {
		var out []string
		for _, tool := range stale(bin, "recipe", tools()) {
			out = append(out, tool.name)
		}
		return out
	}
	check := func(why string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names()); diff != "" {
			t.Errorf("%s: %s", why, diff)
		}
	}
	check("nothing there", "etcd", "kube-apiserver", "kubectl")
	for _, tool := range tools() {
		write(tool.name, "binary")
	}
	check("built from something unknown", "etcd", "kube-apiserver", "kubectl")
	for _, tool := range tools() {
		write("."+tool.name+".stamp", "recipe\n")
	}
	check("all good")
	write(".kubectl.stamp", "older recipe")
	check("the pinned versions changed", "kubectl")
}
