// Package release has what makes a release, and tests of it.
package release

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
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

// TestRelease: the image is what the Dockerfile says, with the program of the archive; and krew installs the
// plugin from that.
func TestRelease(t *testing.T) {
	harness.Long(t)
	dist := t.TempDir()
	platform := runtime.GOARCH
	env := []string{"DIST=" + dist, "VERSION=" + version, "PLATFORMS=linux/" + platform}
	for variable, tool := range map[string]string{"HELM": "helm", "CYCLONEDX": "cyclonedx-gomod", "IMAGE": "release-image"} {
		env = append(env, variable+"="+tools[tool])
	}
	command(t, env, "./release")

	archive := "listproxy-" + version + "-linux-" + platform
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

	checkImage(t, untar(t, filepath.Join(dist, "listproxy-"+version+"-image.tar")))

	// As the architecture of the machine, with the checksum that the manifest has for it.
	home := []string{"KREW_ROOT=" + t.TempDir(), "HOME=" + t.TempDir()}
	command(t, home, tools["krew"], "install",
		"--manifest", filepath.Join(dist, "krew-listproxy.yaml"), "--archive", filepath.Join(dist, archive+".tar.gz"))
	plugin := filepath.Join(strings.TrimPrefix(home[0], "KREW_ROOT="), "bin", "kubectl-listproxy")
	expect.Same(t, "listproxy "+version+"\n", command(t, nil, plugin, "--version"))
}

// TestKrew: the manifest names each archive of a release, and nothing else of it.
func TestKrew(t *testing.T) {
	var sums, want strings.Builder
	for _, archive := range []string{"linux-amd64.tar.gz", "darwin-arm64.tar.gz", "windows-amd64.zip"} {
		for _, file := range []string{archive + ".cdx.json", archive} {
			sums.WriteString(strings.Repeat("0", 64) + "  listproxy-" + version + "-" + file + "\n")
		}
		want.WriteString("uri: https://github.com/listproxy/listproxy/releases/download/" + version + "/listproxy-" + version + "-" + archive + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "./krew", version)
	cmd.Stdin = strings.NewReader(sums.String())
	manifest, err := cmd.Output()
	expect.NoError(t, err)
	expect.Same(t, want.String(), string(bytes.Join(regexp.MustCompile(`uri: .*\n`).FindAll(manifest, -1), nil)))
}

// TestPins: whatever a workflow runs of others is named by its commit.
func TestPins(t *testing.T) {
	workflows, err := filepath.Glob(repository + "/.github/workflows/*.yml")
	expect.NoError(t, err)
	if len(workflows) == 0 {
		t.Error("no workflows")
	}
	pinned := regexp.MustCompile(`^(\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	for _, name := range workflows {
		text, err := os.ReadFile(name) // #nosec G304 -- of the repository
		expect.NoError(t, err)
		for _, uses := range regexp.MustCompile(`\buses: *(.*)`).FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(uses[1]) {
				t.Errorf("%s: %q is not pinned", name, uses[1])
			}
		}
	}
}

func command(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...) // #nosec G204 -- of the repository
	cmd.Env = append(os.Environ(), env...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, failed.String())
	}
	return string(out)
}

func untar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	in, err := os.Open(path) // #nosec G304 -- of this test
	expect.NoError(t, err)
	defer func() { _ = in.Close() }()
	files := map[string][]byte{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if err == io.EOF { //nolint:errorlint // as documented
			return files
		}
		expect.NoError(t, err)
		files[header.Name], err = io.ReadAll(archive)
		expect.NoError(t, err)
	}
}

// A descriptor, and what it leads to in an OCI layout.
type descriptor struct {
	Digest   string
	Platform struct{ OS, Architecture string }
}

func checkImage(t *testing.T, layout map[string][]byte) {
	t.Helper()
	blob := func(digest string, into any) {
		expect.NoError(t, json.Unmarshal(layout["blobs/"+strings.ReplaceAll(digest, ":", "/")], into))
	}
	var index, platforms struct{ Manifests []descriptor }
	expect.NoError(t, json.Unmarshal(layout["index.json"], &index))
	if len(index.Manifests) != 1 {
		t.Fatalf("%d images", len(index.Manifests))
	}
	blob(index.Manifests[0].Digest, &platforms)
	for _, image := range platforms.Manifests {
		var manifest struct{ Config descriptor }
		var config struct {
			OS, Architecture string
			Config           struct {
				User         string
				Entrypoint   []string
				ExposedPorts map[string]struct{}
				Labels       map[string]string
			}
		}
		blob(image.Digest, &manifest)
		blob(manifest.Config.Digest, &config)
		expect.Same(t, image.Platform, struct{ OS, Architecture string }{config.OS, config.Architecture})
		said, err := os.ReadFile(repository + "/Dockerfile")
		expect.NoError(t, err)
		var ports []string
		for _, port := range []string{"8443", "8444", "8081"} {
			if _, exposed := config.Config.ExposedPorts[port+"/tcp"]; exposed {
				ports = append(ports, port)
			}
		}
		entrypoint, err := json.Marshal(config.Config.Entrypoint)
		expect.NoError(t, err)
		for _, line := range []string{
			"USER " + config.Config.User, "ENTRYPOINT " + string(entrypoint), "EXPOSE " + strings.Join(ports, " "),
			"LABEL org.opencontainers.image.source=" + config.Config.Labels["org.opencontainers.image.source"] +
				" org.opencontainers.image.licenses=" + config.Config.Labels["org.opencontainers.image.licenses"],
		} {
			if !strings.Contains(string(said), "\n"+line+"\n") {
				t.Errorf("the Dockerfile does not say %s", line)
			}
		}
	}
}
