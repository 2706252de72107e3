package controlplane

import (
	"context"
	"path/filepath"
)

const (
	helmDir    = toolsDir + "-helm"
	helmModule = "helm.sh/helm/v4"
)

func helmTool() tool { return tool{name: "helm", pkg: helmModule + "/cmd/helm", module: helmModule} }

// Helm makes sure that helm is in bin/ of the repository that holds the working directory, as the
// module tools-helm pins it, and returns its path. It builds as [Binaries] does, and only when it
// is asked for.
func Helm(ctx context.Context, log func(string)) (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	bin, helm := filepath.Join(root, binDir), helmTool()
	return filepath.Join(bin, helm.name),
		provide(ctx, log, filepath.Join(root, filepath.FromSlash(helmDir)), bin, []tool{helm})
}
