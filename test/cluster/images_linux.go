package cluster

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// onNode are the programs that run on the node, beside those of package controlplane, and what installs the chart.
var onNode = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "bridge", "host-local",
	"kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler", "helm", "cyclonedx-gomod", "release-image",
}

// images are those that are packed from one program each, by names that nobody pulls; but for Jaeger's, which is that
// of docs/observability.md, and says where to listen as that does.
var images = []struct {
	program, name string
	env           []string
}{
	{"pause", "localhost/pause:1", nil},
	{"kubectl", "localhost/kubectl:1", nil},
	{"coredns", "localhost/coredns:1", nil},
	{"prometheus", "localhost/prometheus:1", nil},
	{"jaeger", "docker.io/jaegertracing/jaeger:2.13.0", []string{"JAEGER_LISTEN_HOST=0.0.0.0"}},
}

// Build makes all programs that are missing in bin/, which takes long the first time.
func Build(ctx context.Context, log func(string)) error {
	if _, _, err := binaries.Of(ctx, log, ""); err != nil {
		return err
	}
	for _, name := range onNode {
		if _, err := binaries.Tool(ctx, log, name); err != nil {
			return err
		}
	}
	for _, image := range images[2:] {
		if _, err := binaries.Tool(ctx, log, image.program); err != nil {
			return err
		}
	}
	return nil
}

// bin is where programs are.
func bin() (string, error) {
	root, err := binaries.RepoRoot()
	return filepath.Join(root, "bin"), err
}

// pack makes all images in the cluster's directory; that of listproxy, and its chart, as a release does.
func pack(ctx context.Context) error {
	bin, err := bin()
	if err != nil {
		return err
	}
	goBuild := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", filepath.Join(bin, "pause"), "./test/cluster/cmd/pause") // #nosec G204
	release := exec.CommandContext(ctx, "test/release/release")
	for _, cmd := range []*exec.Cmd{goBuild, release} {
		cmd.Dir = filepath.Dir(bin)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DIST="+filepath.Join(dir, "dist"), "PLATFORMS=linux/"+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd.Path, err, out)
		}
	}
	for _, image := range images {
		if err := packOne(filepath.Join(dir, image.program+".tar"), image.name, filepath.Join(bin, image.program), image.env); err != nil {
			return err
		}
	}
	return nil
}

// packOne writes an image with one program, /program, to a file, as docker save would.
func packOne(path, name, program string, env []string) error {
	content, err := os.ReadFile(program) // #nosec G304 -- built here
	if err != nil {
		return err
	}
	layer := path + ".layer"
	err = archive(layer, 0o755, map[string][]byte{"program": content})
	defer func() { _ = os.Remove(layer) }()
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	if files["layer.tar"], err = os.ReadFile(layer); err != nil { // #nosec G304 -- just written
		return err
	}
	type object = map[string]any
	config, err := json.Marshal(object{
		"os": "linux", "architecture": runtime.GOARCH, "config": object{"Entrypoint": []string{"/program"}, "Env": env},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(files["layer.tar"]))}},
	})
	if err != nil {
		return err
	}
	files["config.json"] = config
	files["manifest.json"], err = json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	return errors.Join(err, archive(path, 0o644, files))
}

// archive writes files of one mode to a tar.
func archive(path string, mode int64, files map[string][]byte) error {
	out, err := os.Create(path) // #nosec G304 -- the caller's own
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), out.Close())
}
