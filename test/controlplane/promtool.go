package controlplane

import (
	"context"
	"path/filepath"
)

const (
	promtoolDir    = toolsDir + "-promtool"
	promtoolModule = "github.com/prometheus/prometheus"
)

// promtoolTool leaves out what discovers targets in clouds, which would be most of the program.
func promtoolTool() tool {
	return tool{name: "promtool", pkg: promtoolModule + "/cmd/promtool", module: promtoolModule, tags: "remove_all_sd"}
}

// Promtool makes sure that Prometheus' promtool is in bin/ of the repository that holds the working
// directory, as the module tools-promtool pins it, and returns its path. It builds as [Binaries] does,
// and only when it is asked for.
func Promtool(ctx context.Context, log func(string)) (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	bin, promtool := filepath.Join(root, binDir), promtoolTool()
	return filepath.Join(bin, promtool.name),
		provide(ctx, log, filepath.Join(root, filepath.FromSlash(promtoolDir)), bin, []tool{promtool})
}
