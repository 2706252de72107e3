# The image of listproxy: one static program and the CAs that public servers are verified with (for
# OpenTelemetry's exporters; the API server's CA comes with the service account), run as nobody.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 -t listproxy .
#
# The compiler runs on the builder's own platform, and compiles for the image's.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY policy policy
COPY proxy proxy
COPY snapshot snapshot
COPY telemetry telemetry
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.release=${VERSION}" -o /listproxy ./cmd/listproxy

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /listproxy /listproxy
# A number, so that kubelets can tell that it is not root.
USER 65532:65532
EXPOSE 8443 8444 8081
ENTRYPOINT ["/listproxy"]
