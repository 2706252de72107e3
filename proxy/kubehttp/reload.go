package kubehttp

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// ReloadInterval is the time between two calls of ReloadFiles' reload. The files are small, and reading them notices
// every way of replacing them: the kubelet's symlinks, cert-manager, an editor.
const ReloadInterval = 5 * time.Second

// ReloadFiles calls reload at once and then every ReloadInterval, until ctx ends. reload reads files, and reports whether
// their content has changed. If it returns an error, they cannot be used, and what was read before stays in use. The log
// has each change, and an error if it differs from that of the call before. content is what is read, like "a new CA".
func ReloadFiles(ctx context.Context, log *slog.Logger, content string, reload func(context.Context) (changed bool, err error)) {
	lastProblem := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		changed, err := reload(ctx)
		if changed {
			log.Info(content + " is in use")
		}
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != "" && problem != lastProblem {
			log.Warn(content+" cannot be used: the one before stays in use", "error", problem)
		}
		lastProblem = problem
	}, ReloadInterval)
}
