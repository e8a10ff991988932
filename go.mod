module github.com/shatter-gpu/shatter

go 1.25.0

require (
	github.com/klauspost/compress v1.20.4
	github.com/leanovate/gopter v0.2.11
	github.com/stretchr/testify v1.12.1
	gonum.org/v1/gonum v0.17.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
