package binaries

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestChoose(t *testing.T) {
	root := t.TempDir()
	for folder, mod := range map[string]string{
		"tools":      "module tools\n\nrequire (\n\tk8s.io/kubectl v0.0.0 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n",
		"tools-1.34": "module older\n\nrequire k8s.io/kubernetes v1.34.4\n",
		"tools-1.32": "module oldest\n\nrequire (\n\tk8s.io/kubernetes v1.32.13\n)\n",
		"tools-helm": "module other\n\nrequire helm.sh/helm/v4 v4.0.0\n",
	} {
		expect.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
		expect.NoError(t, os.WriteFile(filepath.Join(root, folder, "go.mod"), []byte(mod), 0o600))
	}
	for version, want := range map[string][2]string{
		"":        {"tools", "1.36.3"},
		"1.36.3":  {"tools", "1.36.3"},
		"1.34.4":  {"tools-1.34", "1.34.4"},
		"1.32.13": {"tools-1.32", "1.32.13"},
	} {
		module, pinned, err := choose(filepath.Join(root, "tools"), filepath.Join(root, path.Base(otherTools)), version)
		expect.NoError(t, err)
		if diff := cmp.Diff(want, [2]string{filepath.Base(module), pinned}); diff != "" {
			t.Errorf("%q: %s", version, diff)
		}
	}
	_, _, err := choose(filepath.Join(root, "tools"), filepath.Join(root, path.Base(otherTools)), "1.32")
	if err == nil || !strings.Contains(err.Error(), "1.36.3, 1.32.13, 1.34.4") {
		t.Errorf("a version that no module pins: %v", err)
	}
}

func TestRecipeChangesWithTheModule(t *testing.T) {
	module := t.TempDir()
	hash := func(mod, sum string) string {
		for name, content := range map[string]string{"go.mod": mod, "go.sum": sum} {
			expect.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(content), 0o600))
		}
		h, err := recipeHash(module)
		expect.NoError(t, err)
		return h
	}
	a := hash("mod", "sum")
	if a != hash("mod", "sum") {
		t.Error("the same module has two hashes")
	}
	for _, other := range []string{hash("mod2", "sum"), hash("mod", "sum2"), hash("mods", "um")} {
		if a == other {
			t.Error("another module has the same hash")
		}
	}
}

func TestBuild(t *testing.T) {
	module, bin := t.TempDir(), t.TempDir()
	write := func(name, content string) {
		expect.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(content), 0o600))
	}
	write("go.mod", "module example.com/tool\n\ngo 1.26\n")
	write("main.go", "package main\n\nfunc main() {}\n")
	var lines []string
	log := func(line string) { lines = append(lines, line) }
	it := tool{name: "it", pkg: ".", module: "example.com/tool"}
	expect.NoError(t, build(t.Context(), log, module, bin, it))
	if info, err := os.Stat(filepath.Join(bin, "it")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the binary: %v, %v", info, err)
	}
	if len(lines) < 2 {
		t.Errorf("logged %q", lines)
	}

	write("main.go", "package main\n\nfunc main() { undefinedFunction() }\n")
	err := build(t.Context(), log, module, bin, it)
	if err == nil || !strings.Contains(err.Error(), "undefinedFunction") {
		t.Errorf("a build that fails: %v", err)
	}
	entries, err := os.ReadDir(bin)
	expect.NoError(t, err)
	if len(entries) != 1 { // the first binary, still
		t.Errorf("left behind: %v", entries)
	}
}

func TestBuildFlags(t *testing.T) {
	want := []string{"-trimpath", "-ldflags", "-s -w" +
		" -X k8s.io/component-base/version.gitVersion=v1.36.3" +
		" -X k8s.io/component-base/version.gitMajor=1" +
		" -X k8s.io/component-base/version.gitMinor=36" +
		" -X k8s.io/component-base/version.gitTreeState=clean", "-o", "out"}
	if diff := cmp.Diff(want, buildFlags("v1.36.3", "out")); diff != "" {
		t.Error(diff)
	}
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		stop := progress("building it v1", func(line string) { got = append(got, line) })
		time.Sleep(12 * time.Second) // the bubble's clock
		stop()
		want := []string{
			"building it v1 …", "building it v1 … 5s", "building it v1 … 10s", "building it v1: done in 12s",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTail(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"empty": {},
		"short": {in: "one\ntwo\n", want: "one\ntwo"},
		"long":  {in: strings.Repeat("x", tailBytes) + "\nlast line\n", want: "last line"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Tail([]byte(tt.in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
