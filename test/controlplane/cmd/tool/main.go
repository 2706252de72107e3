// Command tool builds the named tools into bin/, unless they are there, and prints their paths. A tool is kube-apiserver
// (with etcd and kubectl), one of binaries.Tool, such as helm, or another kube-apiserver, such as kube-apiserver-1.35.4.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say which tools: kube-apiserver (with etcd and kubectl), helm, promtool, krew, crane, actionlint, " +
			"cyclonedx-gomod, release-image, kubernetes.test, controller-runtime-PACKAGE.test or kube-apiserver-VERSION")
	}
	for _, name := range args {
		path, err := tool(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// tool builds a tool, unless it is there, and returns its path.
func tool(ctx context.Context, name string) (path string, err error) {
	log := func(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }
	const apiServer, pinnedVersion = "kube-apiserver", "" // "" is the version that tools/ pins
	version, hasVersion := strings.CutPrefix(name, apiServer+"-")
	switch {
	case name == apiServer:
		version = pinnedVersion
	case !hasVersion:
		return binaries.Tool(ctx, log, name)
	}
	paths, _, err := binaries.ControlPlane(ctx, log, version)
	return paths.KubeAPIServer, err
}
