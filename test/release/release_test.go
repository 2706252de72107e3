// Package release has scripts that make a release, and their tests.
package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
)

const (
	repository = "../.."
	version    = "v0.0.1-test"
)

// TestRelease: a release has its files, its image is as the Dockerfile says, and krew installs the plugin from its archive.
func TestRelease(t *testing.T) {
	harness.Long(t)
	dist := t.TempDir()
	arch := runtime.GOARCH
	env := []string{"DIST=" + dist, "VERSION=" + version, "PLATFORMS=linux/" + arch}
	for variable, tool := range map[string]string{"HELM": "helm", "CYCLONEDX": "cyclonedx-gomod", "IMAGE": "release-image"} {
		env = append(env, variable+"="+tools[tool])
	}
	command(t, env, "./release")

	archive := "listproxy-" + version + "-linux-" + arch
	var names []string
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	expect.NoError(t, err)
	for line := range strings.Lines(string(sums)) {
		names = append(names, strings.Fields(line)[1])
	}
	expect.Same(t, []string{
		"krew-listproxy.yaml", "listproxy-0.0.1-test.tgz", "listproxy-" + version + "-image.tar",
		archive + ".cdx.json", archive + ".tar.gz",
	}, names)

	// The configuration in the image's tar.
	image := command(t, nil, "tar", "-xOf", filepath.Join(dist, "listproxy-"+version+"-image.tar"))
	expect.Says(t, image, `"os":"linux"`, `"architecture":"`+arch+`"`, `"User":"65532:65532"`,
		`"Entrypoint":["/listproxy"]`, `"8081/tcp":{}`,
		`"org.opencontainers.image.licenses":"Apache-2.0"`, `"org.opencontainers.image.version":"0.0.1-test"`)

	// krew chooses the archive for this machine's architecture, and checks its checksum.
	krewRoot := t.TempDir()
	home := []string{"KREW_ROOT=" + krewRoot, "HOME=" + t.TempDir()}
	command(t, home, tools["krew"], "install",
		"--manifest", filepath.Join(dist, "krew-listproxy.yaml"), "--archive", filepath.Join(dist, archive+".tar.gz"))
	plugin := filepath.Join(krewRoot, "bin", "kubectl-listproxy")
	expect.Same(t, "listproxy "+version+"\n", command(t, nil, plugin, "--version"))
}

// TestKrew: krew's manifest names each archive of a release, and no other file.
func TestKrew(t *testing.T) {
	const (
		sum      = "0000000000000000000000000000000000000000000000000000000000000000  listproxy-" + version + "-"
		download = "uri: https://github.com/listproxy/listproxy/releases/download/" + version + "/listproxy-" + version + "-"
	)
	sums := sum + "linux-amd64.tar.gz.cdx.json\n" + sum + "linux-amd64.tar.gz\n" +
		sum + "darwin-arm64.tar.gz\n" +
		sum + "windows-amd64.zip\n" + sum + "windows-amd64.zip.cdx.json\n"
	want := download + "linux-amd64.tar.gz\n" + download + "darwin-arm64.tar.gz\n" + download + "windows-amd64.zip\n"
	cmd := exec.CommandContext(t.Context(), "./krew", version)
	cmd.Stdin = strings.NewReader(sums)
	manifest, err := cmd.Output()
	expect.NoError(t, err)
	expect.Same(t, want, string(bytes.Join(regexp.MustCompile(`uri: .*\n`).FindAll(manifest, -1), nil)))
}

// TestPins: the workflows in .github name every action of another repository by its commit, since a tag may be moved.
func TestPins(t *testing.T) {
	workflows, err := filepath.Glob(repository + "/.github/workflows/*.yml")
	expect.NoError(t, err)
	found := 0
	pinned := regexp.MustCompile(`^(\./\S+|[\w-]+(/[\w-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	for _, name := range workflows {
		text, err := os.ReadFile(name) // #nosec G304 -- of the repository
		expect.NoError(t, err)
		for _, uses := range regexp.MustCompile(`\buses: *(.*)`).FindAllStringSubmatch(string(text), -1) {
			found++
			if !pinned.MatchString(uses[1]) {
				t.Errorf("%s: %q is not pinned to a commit", name, uses[1])
			}
		}
	}
	if found == 0 {
		t.Error("no workflow uses an action: the expression no longer fits")
	}
}

// command runs a program with more environment variables, and returns its standard output.
func command(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...) // #nosec G204 -- of the repository
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}
