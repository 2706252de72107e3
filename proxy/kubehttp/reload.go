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

// ReloadFiles calls reload again and again until ctx ends. reload reads files, and reports whether their content has
// changed. It returns an error if they cannot be used, and then keeps what it has. Each change is logged, and each
// error once. name names the content in the log.
func ReloadFiles(ctx context.Context, log *slog.Logger, name string, reload func(context.Context) (changed bool, err error)) {
	lastError := ""
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		changed, err := reload(ctx)
		if changed {
			log.Info(name + " is in use")
		}
		if err != nil && err.Error() != lastError {
			log.Warn(name+" cannot be used: the one before stays in use", "error", err)
		}
		lastError = ""
		if err != nil {
			lastError = err.Error()
		}
	}, ReloadInterval)
}
