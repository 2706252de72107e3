package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing/fstest"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// tools are programs that binaries.Tool builds: they run on the node, or make and install the release. Package controlplane has
// the others.
var tools = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local",
	"kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler", "helm", "cyclonedx-gomod", "release-image",
}

// images are packed from one program each. Jaeger's image has the name and the environment that docs/observability.md expects.
// No registry has images with the other names.
var images = []struct {
	program string
	name    string
	env     []string
	isTool  bool // built by binaries.Tool; pack builds pause, and binaries.ControlPlane kubectl
}{
	{program: "pause", name: "localhost/pause:1"},
	{program: "kubectl", name: "localhost/kubectl:1"},
	{program: "coredns", name: "localhost/coredns:1", isTool: true},
	{program: "prometheus", name: "localhost/prometheus:1", isTool: true},
	{program: "jaeger", name: "docker.io/jaegertracing/jaeger:2.13.0", env: []string{"JAEGER_LISTEN_HOST=0.0.0.0"}, isTool: true},
}

// build builds all programs that bin/ lacks, which takes long the first time.
func build(ctx context.Context, log func(string)) error {
	if _, _, err := binaries.ControlPlane(ctx, log, ""); err != nil {
		return err
	}
	names := slices.Clone(tools)
	for _, image := range images {
		if image.isTool {
			names = append(names, image.program)
		}
	}
	for _, name := range names {
		if _, err := binaries.Tool(ctx, log, name); err != nil {
			return err
		}
	}
	return nil
}

// binDir returns the folder of all programs.
func binDir() (string, error) {
	root, err := binaries.RepoRoot()
	return filepath.Join(root, "bin"), err
}

// pack writes all images to dir, and releases listproxy's image and chart to dir/dist.
func pack(ctx context.Context) error {
	bin, err := binDir()
	if err != nil {
		return err
	}
	pause := filepath.Join(bin, "pause")
	goBuild := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", pause, "./test/cluster/cmd/pause") // #nosec G204 -- of this file
	release := exec.CommandContext(ctx, "test/release/release")
	for _, cmd := range []*exec.Cmd{goBuild, release} {
		cmd.Dir = filepath.Dir(bin)
		// DIST and PLATFORMS are for the release.
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DIST="+filepath.Join(dir, "dist"), "PLATFORMS=linux/"+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
		}
	}
	for _, image := range images {
		path := filepath.Join(dir, image.program+".tar")
		if err := packOne(path, image.name, filepath.Join(bin, image.program), image.env); err != nil {
			return err
		}
	}
	return nil
}

// packOne writes an image with one program, as /program, to a file, in the format of docker save.
func packOne(path, name, program string, env []string) error {
	content, err := os.ReadFile(program) // #nosec G304 -- built here
	if err != nil {
		return err
	}
	layer, err := archive(fstest.MapFS{"program": {Data: content, Mode: 0o755}})
	if err != nil {
		return err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"os": "linux", "architecture": runtime.GOARCH, "config": object{"Entrypoint": []string{"/program"}, "Env": env},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	image, err := archive(fstest.MapFS{
		"layer.tar":     {Data: layer, Mode: 0o644},
		"config.json":   {Data: config, Mode: 0o644},
		"manifest.json": {Data: manifest, Mode: 0o644},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(path, image, 0o600)
}

// archive returns a tar of files.
func archive(files fstest.MapFS) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	err := errors.Join(w.AddFS(files), w.Close())
	return packed.Bytes(), err
}
